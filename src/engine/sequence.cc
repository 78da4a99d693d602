#include "engine/sequence.h"

#include <algorithm>

namespace mla::engine {

Form Sequence::FormAt(std::int64_t position) const {
  Form form = forms.front().form;
  for (const FormRun& run : forms) {
    if (run.begin > position) break;
    form = run.form;
  }
  return form;
}

std::int64_t Sequence::FormEnd(std::int64_t position, std::int64_t end) const {
  for (const FormRun& run : forms) {
    if (run.begin > position && run.form != FormAt(position)) return std::min(run.begin, end);
  }
  return end;
}

void Sequence::AppendLabels(std::int64_t begin, std::int64_t end, std::vector<FormLabel>* labels) const {
  while (begin < end) {
    const std::int64_t run_end = FormEnd(begin, end);
    labels->insert(labels->end(), static_cast<std::size_t>(run_end - begin), static_cast<FormLabel>(FormAt(begin)));
    begin = run_end;
  }
}

std::vector<FormRun> AssignForms(Mode mode, const FormTable& table, const MlaDims& dims, std::int64_t output_begin,
                                 std::span<const FormLabel> found) {
  std::vector<FormRun> forms;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto form = static_cast<Form>(found[i]);
    if (forms.empty() || forms.back().form != form) forms.push_back({static_cast<std::int64_t>(i), form});
  }
  const auto common = static_cast<std::int64_t>(found.size());
  const std::int64_t left = std::max<std::int64_t>(0, output_begin - common);  // of the prompt
  Form prompt = Form::kAbsorbed;
  Form output = Form::kAbsorbed;
  switch (mode) {
    case Mode::kAuto: prompt = ChooseForm(table, dims, common, left); break;
    case Mode::kRole: prompt = Form::kMha; break;
    case Mode::kMha: prompt = output = Form::kMha; break;
    case Mode::kAbsorb: break;
  }
  if (left > 0) forms.push_back({common, prompt});
  forms.push_back({common + left, output});
  return forms;
}

}  // namespace mla::engine
