// Finds added tokens in trusted text: the leftmost, and of those that begin there the longest.
#ifndef MLA_TEXT_ADDED_TOKENS_H_
#define MLA_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mla::text {

struct AddedToken {
  std::string content;  // not empty
  std::int32_t id = 0;
  bool special = false;
  bool normalized = false;  // looked for in a second pass, normalized, in what the first has left, normalized
  bool lstrip = false;      // takes the white space before it, up to the token before
  bool rstrip = false;      // and the white space after it
};

// Bytes of the white space (Unicode's White_Space) that valid UTF-8 ends or begins with.
std::size_t SpacesAtEnd(std::string_view text);
std::size_t SpacesAtStart(std::string_view text);

// Immutable; const functions may be called from several threads at once.
class AddedTokenFinder {
 public:
  // Of tokens with distinct contents.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  bool empty() const { return entries_.empty(); }

  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = 0;
    bool lstrip = false;
    bool rstrip = false;
  };
  // The first one at `from` or later.
  std::optional<Found> Find(std::string_view text, std::size_t from) const;

 private:
  std::vector<AddedToken> entries_;              // sorted by content
  std::array<std::uint32_t, 257> first_byte_{};  // of entries_, the range that begins with each byte
};

}  // namespace mla::text

#endif  // MLA_TEXT_ADDED_TOKENS_H_
