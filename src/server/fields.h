// Members of a request's object, read one by one; the first fault is kept, and names its field.
#ifndef MLA_SERVER_FIELDS_H_
#define MLA_SERVER_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"
#include "server/api_error.h"

namespace mla::server {

// A member that is absent or null leaves what it would set as it is. `object` outlives the reader.
class Fields {
 public:
  explicit Fields(const io::JsonValue& object) : object_(&object) {}

  // The member, or nullptr where it is absent or null.
  const io::JsonValue* Find(std::string_view key) const;
  void Whole(std::string_view key, std::int64_t low, std::int64_t high, std::int64_t* out);
  void Whole(std::string_view key, std::int64_t low, std::int64_t high, std::optional<std::int64_t>* out);
  // From low (itself allowed only where `closed`) to high.
  void Number(std::string_view key, double low, bool closed, double high, std::optional<double>* out);
  void Bool(std::string_view key, bool* out);
  void Text(std::string_view key, std::string* out);
  // A known field that is not supported, unless it says what happens anyway: null, false, or an empty text or list.
  void Refuse(std::string_view key);

  void Fail(std::string_view key, std::string_view expected, const io::JsonValue& found);
  void Fail(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const io::JsonValue* object_;
  std::optional<ApiError> error_;
};

}  // namespace mla::server

#endif  // MLA_SERVER_FIELDS_H_
