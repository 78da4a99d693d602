// Each function of base/simd.h as a plain function, for one instruction set. Plain types alone: compiled under every
// instruction set's flags.
#ifndef MLA_TESTS_BASE_SIMD_PROBE_H_
#define MLA_TESTS_BASE_SIMD_PROBE_H_

#include <stdint.h>

namespace mla::testing {

// Every pointer is to 16 elements, at any alignment.
struct SimdProbe {
  const char* name;
  bool fused;  // Fma rounds once
  void (*zero)(float* out);
  void (*set1)(float x, float* out);
  void (*load_store)(const float* a, float* out);
  void (*add)(const float* a, const float* b, float* out);
  void (*sub)(const float* a, const float* b, float* out);
  void (*mul)(const float* a, const float* b, float* out);
  void (*div)(const float* a, const float* b, float* out);
  void (*max)(const float* a, const float* b, float* out);
  void (*min)(const float* a, const float* b, float* out);
  void (*fma)(const float* a, const float* b, const float* c, float* out);
  void (*round)(const float* a, float* out);
  void (*pow2)(const float* a, float* out);
  void (*zero_where_less)(const float* a, const float* b, const float* x, float* out);
  void (*load_bf16)(const uint16_t* a, float* out);
  void (*load_bf16_pairs)(const uint16_t* a, float* first, float* second);  // a: 32 elements
  float (*reduce_add)(const float* a);
  float (*reduce_max)(const float* a);
  void (*exp)(const float* a, float* out);
};

extern const SimdProbe kProbePortable;
extern const SimdProbe kProbeAvx2;
extern const SimdProbe kProbeAvx512;

}  // namespace mla::testing

#endif  // MLA_TESTS_BASE_SIMD_PROBE_H_
