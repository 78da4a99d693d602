// The page at `/`: page.html, built in.
#ifndef MLA_SERVER_PAGE_H_
#define MLA_SERVER_PAGE_H_

#include <string_view>

namespace mla::server {

std::string_view Page();

}  // namespace mla::server

#endif  // MLA_SERVER_PAGE_H_
