#include "server/page.h"

#include "mla_page.h"

namespace mla::server {

std::string_view Page() { return {reinterpret_cast<const char*>(kPageBytes), sizeof(kPageBytes)}; }

}  // namespace mla::server
