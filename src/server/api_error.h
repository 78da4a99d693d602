// What a client is told that asked for something that is not to be had: OpenAI's form of an error.
#ifndef MLA_SERVER_API_ERROR_H_
#define MLA_SERVER_API_ERROR_H_

#include <string>
#include <string_view>

namespace mla::server {

struct ApiError {
  int status = 400;
  std::string message = {};     // one line: where, what was expected, what was found
  std::string param = {};       // the field at fault; "" where there is none
  std::string code = {};        // "" where the status says it all
  std::string_view allow = {};  // of 405: the method that is allowed, a literal
  int retry_after = 0;          // seconds; 0: not told
};

// {"error": {"message", "type", "param", "code"}}; the type follows from the status. Bytes of the message that are no
// valid UTF-8 are replaced.
std::string ErrorJson(const ApiError& error);

// "Too Many Requests" of 429; "" of a status that the server does not use.
std::string_view ReasonPhrase(int status);

}  // namespace mla::server

#endif  // MLA_SERVER_API_ERROR_H_
