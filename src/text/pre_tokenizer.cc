#include "text/pre_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include "text/normalizer.h"
#include "text/utf8.h"

namespace mla::text {
namespace {

using Segment = std::pair<std::string_view, bool>;  // a part of the piece, and whether the pattern matched it

// The piece as segments, in order and without holes. A match that is empty is a segment too (it parts its neighbours),
// but not right after another match: there the search goes on one character later, as the tokenizers library does.
Status FindSegments(const SplitStage& stage, std::string_view piece, RegexMatcher& matcher,
                    std::vector<Segment>& segments) {
  segments.clear();
  std::size_t done = 0;
  std::size_t from = 0;
  std::optional<std::size_t> last_end;
  while (from <= piece.size()) {
    auto found = matcher.Find(stage.regex, piece, from);
    if (!found.ok()) return Error{fmt::format("{}: {}", stage.where, found.error().message)};
    if (!found->has_value()) break;
    const Match match = **found;
    if (match.begin == match.end && last_end == match.end) {
      from = match.end + (match.end < piece.size() ? NextUtf8(piece.substr(match.end)).bytes : 1);
      continue;
    }
    if (done != match.begin) segments.emplace_back(piece.substr(done, match.begin - done), stage.invert);
    segments.emplace_back(piece.substr(match.begin, match.end - match.begin), !stage.invert);
    done = from = match.end;
    last_end = match.end;
  }
  if (done != piece.size()) segments.emplace_back(piece.substr(done), stage.invert);
  return {};
}

// Two neighbours as one. `a` is before `b`.
std::string_view Join(std::string_view a, std::string_view b) { return {a.data(), a.size() + b.size()}; }

// Joins in place: each segment to the one before it, where `joins` says so of (this one, whether the one before
// matched).
template <class Joins>
void JoinBackwards(std::vector<Segment>& segments, Joins joins) {
  std::size_t kept = 0;
  bool previous = false;
  for (const Segment& segment : segments) {
    const bool matched = segment.second;
    if (kept > 0 && joins(matched, previous)) {
      segments[kept - 1].first = Join(segments[kept - 1].first, segment.first);
    } else {
      segments[kept++] = segment;
    }
    previous = matched;
  }
  segments.resize(kept);
}

// From the end to the front: a match goes to the text after it, where that is no match.
void JoinWithNext(std::vector<Segment>& segments) {
  std::size_t kept = segments.size();
  bool previous = false;
  for (std::size_t i = segments.size(); i-- > 0;) {
    const Segment segment = segments[i];
    if (kept < segments.size() && segment.second && !previous) {
      segments[kept].first = Join(segment.first, segments[kept].first);
    } else {
      segments[--kept] = segment;
    }
    previous = segment.second;
  }
  segments.erase(segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(kept));
}

}  // namespace

Status PreTokenizer::RunStage(const SplitStage& stage, std::string_view piece, Scratch& scratch) {
  auto& segments = scratch.segments;
  MLA_RETURN_IF_ERROR(FindSegments(stage, piece, scratch.matcher, segments));
  switch (stage.behavior) {
    case SplitBehavior::kIsolated: break;
    case SplitBehavior::kRemoved: std::erase_if(segments, [](const Segment& segment) { return segment.second; }); break;
    case SplitBehavior::kMergedWithPrevious:
      JoinBackwards(segments, [](bool matched, bool previous) { return matched && !previous; });
      break;
    case SplitBehavior::kContiguous:
      JoinBackwards(segments, [](bool matched, bool previous) { return matched == previous; });
      break;
    case SplitBehavior::kMergedWithNext: JoinWithNext(segments); break;
  }
  for (const Segment& segment : segments) {
    if (!segment.first.empty()) scratch.pieces.push_back(segment.first);
  }
  return {};
}

Result<std::string> PreTokenizer::ApplyMetaspace(std::string_view text, bool at_start) const {
  Normalizer spaces;
  spaces.AddReplace({" ", metaspace_->symbol});
  MLA_ASSIGN_OR_RETURN(std::string result, spaces.Apply(text));
  const bool wanted = metaspace_->prepend == Metaspace::Prepend::kAlways ||
                      (metaspace_->prepend == Metaspace::Prepend::kFirst && at_start);
  if (wanted && !result.starts_with(metaspace_->symbol)) result.insert(0, metaspace_->symbol);
  return result;
}

Status PreTokenizer::Split(std::string_view text, bool at_start, Scratch& scratch) const {
  scratch.pieces.clear();
  scratch.prefixed.clear();
  if (text.empty()) return {};
  if (metaspace_) {
    MLA_ASSIGN_OR_RETURN(std::string spelled, ApplyMetaspace(text, at_start));
    text = scratch.prefixed.emplace_back(std::move(spelled));
  }
  scratch.pieces.push_back(text);
  const auto prefix = [&scratch] {
    for (std::string_view& piece : scratch.pieces) {
      if (!piece.starts_with(' ')) piece = scratch.prefixed.emplace_back(" " + std::string(piece));
    }
  };
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (prefix_after_ == static_cast<std::ptrdiff_t>(i)) prefix();
    scratch.previous.swap(scratch.pieces);
    scratch.pieces.clear();
    scratch.matcher.StartText(text.size());
    for (const std::string_view piece : scratch.previous) MLA_RETURN_IF_ERROR(RunStage(stages_[i], piece, scratch));
  }
  if (prefix_after_ == static_cast<std::ptrdiff_t>(stages_.size())) prefix();
  return {};
}

}  // namespace mla::text
