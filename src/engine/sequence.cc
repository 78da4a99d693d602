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

std::vector<FormRun> AssignForms(Mode mode, const FormTable& table, const MlaDims& dims, std::int64_t prompt_size,
                                 const Sequence* donor, std::int64_t common) {
  std::vector<FormRun> forms;
  if (donor != nullptr) {
    for (const FormRun& run : donor->forms) {
      if (run.begin < common) forms.push_back(run);
    }
  }
  Form prompt = Form::kAbsorbed;
  Form output = Form::kAbsorbed;
  switch (mode) {
    case Mode::kAuto: prompt = ChooseForm(table, dims, common, prompt_size - common); break;
    case Mode::kRole: prompt = Form::kMha; break;
    case Mode::kMha: prompt = output = Form::kMha; break;
    case Mode::kAbsorb: break;
  }
  forms.push_back({common, prompt});
  forms.push_back({prompt_size, output});
  return forms;
}

}  // namespace mla::engine
