#include "cli/html_page.h"

#include <cerrno>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>

#include "cli/svg_chart.h"
#include "io/file.h"

namespace mla::cli {
namespace {

constexpr std::string_view kCss =
    R"(:root{--text:#1a1c1f;--back:#fff;--grid:#d5d9de;--c0:#0b57d0;--c1:#b3261e;--c2:#146c2e;--c3:#7a4b00;--c4:#6b2fa8;--c5:#00696e}
@media (prefers-color-scheme:dark){:root{--text:#e4e6ea;--back:#16181b;--grid:#3a3f46;--c0:#8ab4f8;--c1:#f2b8b5;--c2:#81c995;--c3:#fdd663;--c4:#d0b0ff;--c5:#78d9e0}}
@media print{:root{--text:#000;--back:#fff;--grid:#bbb;--c0:#0b57d0;--c1:#b3261e;--c2:#146c2e;--c3:#7a4b00;--c4:#6b2fa8;--c5:#00696e}figure{break-inside:avoid}}
body{color:var(--text);background:var(--back);font:16px/1.45 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
figure{margin:1.5rem 0;max-width:42rem}figcaption h3{margin:0}figcaption p{margin:.2rem 0 .6rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{border:1px solid var(--grid);padding:.25rem .6rem;text-align:right;white-space:nowrap}
th[scope=row]{text-align:left;font-weight:600}th[scope=col]{white-space:normal;min-width:5rem}.words td{text-align:left;white-space:normal}summary{font-weight:600;margin:.6rem 0}.wide{overflow-x:auto}
)";

}  // namespace

std::string HtmlPage(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n"
      "<main>\n{}</main>\n</body>\n</html>\n",
      Escaped(title), kCss, ChartCss(), body);
}

Status WritePage(const std::string& path, const std::string& page) {
  const io::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const int fault = file.get() < 0 ? errno : io::WriteAll(file.get(), std::as_bytes(std::span(page)));
  return fault == 0 ? Status() : Status(io::CantWrite(path, fault));
}

}  // namespace mla::cli
