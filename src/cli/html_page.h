// Reports as one page that loads nothing: for phone and print, light and dark.
#ifndef MLA_CLI_HTML_PAGE_H_
#define MLA_CLI_HTML_PAGE_H_

#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::cli {

// A page of that title with `body` in it, and the styles that tables and FigureHtml's charts use. `title` is plain
// text.
std::string HtmlPage(std::string_view title, std::string_view body);

// Fails where the file can't be written.
Status WritePage(const std::string& path, const std::string& page);

}  // namespace mla::cli

#endif  // MLA_CLI_HTML_PAGE_H_
