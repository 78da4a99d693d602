// Charts as inline SVG with logarithmic or linear axes, and the same numbers as a table: for a page that loads nothing.
#ifndef MLA_CLI_SVG_CHART_H_
#define MLA_CLI_SVG_CHART_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mla::cli {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // finite, on a logarithmic axis positive; others are left out
  bool line = true;                               // false: marks alone
};

struct ChartAxis {
  std::string title;
  double base = 2;                                // of a logarithmic axis's ticks; 0: linear, from 0 up
  std::function<std::string(double value)> text;  // of a tick and of a table's cell
};

struct Chart {
  std::string id;  // of the page's, letters alone
  std::string title;
  std::string about;  // a sentence: what it shows
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;
};

// A <figure>: the chart with its title and description for readers who don't see it, a legend, and a table. Lines
// differ in colour and in dashes, marks in colour and in shape. Empty where no point is left.
std::string FigureHtml(const Chart& chart);

// The same chart as a file of its own, title and legend drawn into it, in colours for light and dark. Empty where no
// point is left.
std::string SvgFile(const Chart& chart);

// Text between tags or in an attribute.
std::string Escaped(std::string_view text);

// The classes that figures use, in colours of the page's own variables.
std::string_view ChartCss();

}  // namespace mla::cli

#endif  // MLA_CLI_SVG_CHART_H_
