#include "server/api_error.h"

#include "io/quote.h"
#include "server/json_writer.h"

namespace mla::server {
namespace {

constexpr std::size_t kLongestMessage = 1000;

std::string_view TypeOf(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

void StringOrNull(JsonWriter& json, std::string_view key, std::string_view text) {
  json.Key(key);
  if (text.empty()) {
    json.Null();
  } else {
    json.String(text);
  }
}

}  // namespace

std::string ErrorJson(const ApiError& error) {
  JsonWriter json;
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(io::Printable(error.message, kLongestMessage));
  json.Key("type").String(TypeOf(error.status));
  StringOrNull(json, "param", error.param);
  StringOrNull(json, "code", error.code);
  json.EndObject().EndObject();
  return json.Take();
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "";
  }
}

}  // namespace mla::server
