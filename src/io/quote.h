// Text from outside, made fit for a one-line message.
#ifndef MLA_IO_QUOTE_H_
#define MLA_IO_QUOTE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace mla::io {

// `text` with control characters and bytes that are no UTF-8 written as \xNN, cut after max_characters with "...".
std::string Printable(std::string_view text, std::size_t max_characters = 400);

// The same between double quotes, with inner quotes and backslashes escaped.
std::string Quoted(std::string_view text, std::size_t max_characters = 40);

// `text`, which is valid UTF-8, as a JSON string with its quotes.
std::string JsonString(std::string_view text);

// Offset of the first byte that does not belong to valid UTF-8, or text.size().
std::size_t ValidUtf8Prefix(std::string_view text);

}  // namespace mla::io

#endif  // MLA_IO_QUOTE_H_
