#include <cmath>
#include <string>

#include <fmt/format.h>

#include "mla/engine.h"
#include "verify/levels.h"
#include "verify/pass.h"

namespace mla::verify {
namespace {

// Equal bits pass; a difference is told relative to the row.
void CompareBits(const Matrix& found, const Matrix& expected, Tally* tally) {
  for (std::int64_t t = 0; t < expected.rows; ++t) {
    const double size = RootMeanSquare(expected.row(t), expected.cols);
    Place place{-1, t};
    for (place.channel = 0; place.channel < expected.cols; ++place.channel) {
      tally->Add(std::abs(found.row(t)[place.channel] - expected.row(t)[place.channel]), 0, size, place);
    }
  }
}

// Pages of several sizes, in any order, of a cache full of NaN, whole and in chunks, against one page.
Status ProvePages(const Subject& subject, const Scope& scope, Form form, Report* report) {
  const auto total = std::ssize(scope.ids);
  Pass pass;
  pass.ids = scope.ids;
  pass.forms = {{total, form}};
  pass.logits = true;
  pass.page_tokens = total;
  MLA_ASSIGN_OR_RETURN(const PassResult whole, RunPass(subject, pass));
  struct Variant {
    std::int64_t page_tokens;
    std::int64_t chunk;
  };
  for (const Variant& v : {Variant{64, 0}, Variant{16, 0}, Variant{7, 5}, Variant{1, 0}}) {
    Tally tally(4, fmt::format("{}: pages of {}, shuffled{}", FormName(form), v.page_tokens,
                               v.chunk > 0 ? fmt::format(", chunks of {}", v.chunk) : std::string()));
    pass.page_tokens = v.page_tokens;
    pass.chunk = v.chunk;
    pass.shuffle = 3;
    MLA_ASSIGN_OR_RETURN(const PassResult paged, RunPass(subject, pass));
    CompareBits(paged.logits, whole.logits, &tally);
    report->Add(tally.Finish());
  }
  return {};
}

}  // namespace

Status ProveCache(const Subject& subject, const Scope& scope, Report* report) {
  for (const Form form : {Form::kAbsorbed, Form::kMha}) MLA_RETURN_IF_ERROR(ProvePages(subject, scope, form, report));
  for (const Mode mode : {Mode::kAbsorb, Mode::kMha, Mode::kRole}) {
    MLA_RETURN_IF_ERROR(ProveSharing(subject, scope, mode, report));
  }
  return {};
}

}  // namespace mla::verify
