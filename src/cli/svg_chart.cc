#include "cli/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

namespace mla::cli {
namespace {

// The drawing's own units; a page scales it.
constexpr double kWidth = 480;
constexpr double kHeight = 320;
constexpr double kLeft = 92;
constexpr double kRight = 26;
constexpr double kTop = 12;
constexpr double kBottom = 50;
constexpr std::size_t kStyles = 6;

bool OnAxis(const ChartAxis& axis, double value) {
  return std::isfinite(value) && (axis.base > 0 ? value > 0 : value >= 0);
}
bool Drawn(const Chart& chart, const std::pair<double, double>& p) {
  return OnAxis(chart.x, p.first) && OnAxis(chart.y, p.second);
}

// Marks of each style have a shape of their own: circle, square, diamond, triangle.
std::string Mark(std::size_t style, double x, double y, double r) {
  switch (style % 4) {
    case 0: return fmt::format("<circle class=\"m{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", style, x, y, r);
    case 1:
      return fmt::format("<rect class=\"m{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>", style, x - r,
                         y - r, 2 * r, 2 * r);
    case 2:
      return fmt::format("<path class=\"m{0}\" d=\"M{1:.1f} {2:.1f}l{3} {3}l{3} -{3}l-{3} -{3}z\"/>", style, x - r, y,
                         r);
    default:
      return fmt::format("<path class=\"m{0}\" d=\"M{1:.1f} {2:.1f}h{3}l-{4} -{3}z\"/>", style, x - r, y + r, 2 * r, r);
  }
}

// What an axis spans, and its ticks: whole powers of its base, or whole multiples of a round step from 0.
struct Range {
  double base = 2;  // 0: linear
  double low = 0;   // exponents, or multiples of `unit`
  double high = 1;
  double unit = 1;    // of a linear axis
  double stride = 1;  // between ticks, so that at most seven are drawn

  double At(double value) const {
    return ((base > 0 ? std::log(value) / std::log(base) : value / unit) - low) / (high - low);
  }
  double Value(double tick) const { return base > 0 ? std::pow(base, tick) : tick * unit; }
};

Range LogRange(double base, double least, double most) {
  Range range{base, std::floor(std::log(least) / std::log(base) + 1e-9),
              std::ceil(std::log(most) / std::log(base) - 1e-9), 1, 1};
  range.high = std::max(range.high, range.low + 1);
  range.stride = std::max(1.0, std::floor((range.high - range.low + 6) / 7));
  return range;
}

// Steps of 1, 2 or 5 times a power of ten.
Range LinearRange(double most) {
  const double rough = std::max(most, 1e-9) / 6;
  const double ten = std::pow(10, std::floor(std::log10(rough)));
  const double unit = rough <= ten ? ten : rough <= 2 * ten ? 2 * ten : rough <= 5 * ten ? 5 * ten : 10 * ten;
  return {0, 0, std::max(1.0, std::ceil(most / unit - 1e-9)), unit, 1};
}

template <class Of>
Range RangeOf(const Chart& chart, const ChartAxis& axis, const Of& of) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const ChartSeries& s : chart.series) {
    for (const auto& p : s.points) {
      if (!Drawn(chart, p)) continue;
      least = std::min(least, of(p));
      most = std::max(most, of(p));
    }
  }
  return axis.base > 0 ? LogRange(axis.base, least, most) : LinearRange(most);
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart)
      : chart_(chart),
        x_(RangeOf(chart, chart.x, [](const auto& p) { return p.first; })),
        y_(RangeOf(chart, chart.y, [](const auto& p) { return p.second; })) {}

  // The whole drawing; `attributes` go into its root, and `height` of it is what a legend below may use.
  std::string Svg(std::string_view attributes = "", double height = kHeight, std::string_view below = "") const {
    std::string svg = fmt::format(
        "<svg{} viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-title {}-about\">\n<title "
        "id=\"{}-title\">{}</title>\n"
        "<desc id=\"{}-about\">{}</desc>\n{}",
        attributes, kWidth, height, chart_.id, chart_.id, chart_.id, Escaped(chart_.title), chart_.id,
        Escaped(chart_.about), below);
    svg += Axes();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) svg += Series(chart_.series[i], i % kStyles);
    return svg + "</svg>\n";
  }

 private:
  double X(double value) const { return kLeft + x_.At(value) * (kWidth - kLeft - kRight); }
  double Y(double value) const { return kHeight - kBottom - y_.At(value) * (kHeight - kTop - kBottom); }

  std::string Axes() const {
    std::string svg;
    for (double tick = x_.low; tick <= x_.high; tick += x_.stride) {
      const double value = x_.Value(tick);
      svg += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text x=\"{0:.1f}\" y=\"{3}\" "
          "text-anchor=\"middle\">{4}</text>\n",
          X(value), kTop, kHeight - kBottom, kHeight - kBottom + 18, Escaped(chart_.x.text(value)));
    }
    for (double tick = y_.low; tick <= y_.high; tick += y_.stride) {
      const double value = y_.Value(tick);
      svg += fmt::format(
          "<line class=\"grid\" x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
          "text-anchor=\"end\">{5}</text>\n",
          Y(value), kLeft, kWidth - kRight, kLeft - 6, Y(value) + 4, Escaped(chart_.y.text(value)));
    }
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (kLeft + kWidth - kRight) / 2,
                       kHeight - 10, Escaped(chart_.x.title));
    return svg + fmt::format("<text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                             (kTop + kHeight - kBottom) / 2, Escaped(chart_.y.title));
  }

  std::string Series(const ChartSeries& s, std::size_t style) const {
    std::string line;
    std::string marks;
    for (const auto& p : s.points) {
      if (!Drawn(chart_, p)) continue;
      line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", X(p.first), Y(p.second));
      marks += Mark(style, X(p.first), Y(p.second), s.line ? 2.5 : 6.0);
    }
    if (!s.line) return marks + "\n";
    return fmt::format("<polyline class=\"l{}\" points=\"{}\"/>{}\n", style, line, marks);
  }

  const Chart& chart_;
  Range x_;
  Range y_;
};

std::string Legend(const Chart& chart) {
  std::string html = "<ul class=\"legend\">\n";
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::size_t style = i % kStyles;
    const std::string mark = chart.series[i].line
                                 ? fmt::format("<line class=\"l{}\" x1=\"0\" x2=\"34\" y1=\"6\" y2=\"6\"/>", style)
                                 : Mark(style, 17, 6, 5);
    html +=
        fmt::format("<li><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">{}</svg> {}</li>\n",
                    mark, Escaped(chart.series[i].name));
  }
  return html + "</ul>\n";
}

std::string Table(const Chart& chart) {
  std::map<double, std::vector<std::string>> rows;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    for (const auto& p : chart.series[i].points) {
      if (!Drawn(chart, p)) continue;
      auto& row = rows[p.first];
      row.resize(chart.series.size());
      row[i] = chart.y.text(p.second);
    }
  }
  std::string html = fmt::format(
      "<details><summary>The numbers of this chart</summary>\n<div class=\"wide\"><table>\n<tr><th "
      "scope=\"col\">{}</th>",
      Escaped(chart.x.title));
  for (const ChartSeries& s : chart.series) html += fmt::format("<th scope=\"col\">{}</th>", Escaped(s.name));
  html += "</tr>\n";
  for (const auto& [x, cells] : rows) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", Escaped(chart.x.text(x)));
    for (const std::string& cell : cells) html += fmt::format("<td>{}</td>", Escaped(cell));
    html += "</tr>\n";
  }
  return html + "</table></div></details>\n";
}

bool AnyPoint(const Chart& chart) {
  return std::any_of(chart.series.begin(), chart.series.end(), [&](const ChartSeries& s) {
    return std::any_of(s.points.begin(), s.points.end(), [&](const auto& p) { return Drawn(chart, p); });
  });
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string SvgFile(const Chart& chart) {
  if (!AnyPoint(chart)) return "";
  constexpr double kLine = 20;
  std::string below = fmt::format(
      "<style>svg{{--text:#1b1f24;--grid:#d8dde3;--c0:#0b62a8;--c1:#b3471d;--c2:#23773b;--c3:#7b3fa0;--c4:#8a6500;"
      "--c5:#5d6670;font-family:system-ui,sans-serif;background:#fff}}\n@media(prefers-color-scheme:dark){{svg{{--text:"
      "#e6e9ec;--grid:#3a424b;--c0:#6db3f2;--c1:#f29a74;--c2:#7ccf94;--c3:#c79be6;--c4:#e0bd5c;--c5:#aab3bd;background:"
      "#"
      "15191e}}}}\n{}</style>\n",
      ChartCss());
  double y = kHeight + 6;
  below += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft, y + 4, Escaped(chart.title));
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    y += kLine;
    const std::size_t style = i % kStyles;
    below += chart.series[i].line
                 ? fmt::format("<polyline class=\"l{}\" points=\"{},{} {},{}\"/>", style, kLeft, y, kLeft + 34, y)
                 : Mark(style, kLeft + 17, y, 5);
    below += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft + 42, y + 4, Escaped(chart.series[i].name));
  }
  return Drawing(chart).Svg(" xmlns=\"http://www.w3.org/2000/svg\"", y + kLine, below);
}

std::string FigureHtml(const Chart& chart) {
  if (!AnyPoint(chart)) return "";
  return fmt::format("<figure>\n<figcaption><h3>{}</h3><p>{}</p></figcaption>\n{}{}{}</figure>\n", Escaped(chart.title),
                     Escaped(chart.about), Drawing(chart).Svg(), Legend(chart), Table(chart));
}

std::string_view ChartCss() {
  return R"(svg{display:block;width:100%;height:auto}
svg text{font-size:13px;fill:var(--text)}
.grid{stroke:var(--grid);stroke-width:1}
polyline,.legend line{fill:none;stroke-width:2.2}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1);stroke-dasharray:8 4}.l2{stroke:var(--c2);stroke-dasharray:2 4}
.l3{stroke:var(--c3);stroke-dasharray:12 3 2 3}.l4{stroke:var(--c4);stroke-dasharray:5 5}.l5{stroke:var(--c5);stroke-dasharray:1 3}
.m0{fill:var(--c0)}.m1{fill:var(--c1)}.m2{fill:var(--c2)}.m3{fill:var(--c3)}.m4{fill:var(--c4)}.m5{fill:var(--c5)}
.legend{list-style:none;padding:0;margin:.4rem 0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}
.legend svg{display:inline-block;width:34px;height:12px}
)";
}

}  // namespace mla::cli
