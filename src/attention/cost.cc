#include "mla/attention.h"

namespace mla {

const char* FormName(Form form) { return form == Form::kMha ? "mha" : "absorbed"; }

FormWork WorkOf(Form form, const MlaDims& dims, std::int64_t rows, std::int64_t keys) {
  const auto t = static_cast<double>(rows);
  const auto s = static_cast<double>(keys);
  const auto h = static_cast<double>(dims.num_attention_heads);
  const auto n = static_cast<double>(dims.qk_nope_head_dim);
  const auto p = static_cast<double>(dims.qk_rope_head_dim);
  const auto v = static_cast<double>(dims.v_head_dim);
  const auto r = static_cast<double>(dims.kv_lora_rank);
  const double pairs = t * (s - t) + t * (t + 1) / 2;
  if (form == Form::kMha) return {s * r * h * (n + v), h * pairs * (n + p + v)};
  return {t * r * h * (n + v), h * pairs * (2 * r + p)};
}

Form ChooseForm(const FormTable& table, const MlaDims& dims, std::int64_t first, std::int64_t rows) {
  const double mha = FormCost(table, Form::kMha, dims, first, rows);
  return mha < FormCost(table, Form::kAbsorbed, dims, first, rows) ? Form::kMha : Form::kAbsorbed;
}

}  // namespace mla
