// The probe's functions; included once for each instruction set.

namespace mla::testing {
namespace {

using namespace simd::MLA_SIMD_NS;  // NOLINT(google-build-using-namespace): the vocabulary of this file

void ProbeZero(float* out) { Store(out, Zero()); }
void ProbeSet1(float x, float* out) { Store(out, Set1(x)); }
void ProbeLoadStore(const float* a, float* out) { Store(out, Load(a)); }
void ProbeAdd(const float* a, const float* b, float* out) { Store(out, Add(Load(a), Load(b))); }
void ProbeSub(const float* a, const float* b, float* out) { Store(out, Sub(Load(a), Load(b))); }
void ProbeMul(const float* a, const float* b, float* out) { Store(out, Mul(Load(a), Load(b))); }
void ProbeDiv(const float* a, const float* b, float* out) { Store(out, Div(Load(a), Load(b))); }
void ProbeMax(const float* a, const float* b, float* out) { Store(out, Max(Load(a), Load(b))); }
void ProbeMin(const float* a, const float* b, float* out) { Store(out, Min(Load(a), Load(b))); }
void ProbeFma(const float* a, const float* b, const float* c, float* out) {
  Store(out, Fma(Load(a), Load(b), Load(c)));
}
void ProbeRound(const float* a, float* out) { Store(out, Round(Load(a))); }
void ProbePow2(const float* a, float* out) { Store(out, Pow2(Load(a))); }
void ProbeZeroWhereLess(const float* a, const float* b, const float* x, float* out) {
  Store(out, ZeroWhereLess(Load(a), Load(b), Load(x)));
}
void ProbeLoadBf16(const uint16_t* a, float* out) { Store(out, LoadBf16(a)); }
void ProbeLoadBf16Pairs(const uint16_t* a, float* first, float* second) {
  V16 x;
  V16 y;
  LoadBf16Pairs(a, &x, &y);
  Store(first, x);
  Store(second, y);
}
float ProbeReduceAdd(const float* a) { return ReduceAdd(Load(a)); }
float ProbeReduceMax(const float* a) { return ReduceMax(Load(a)); }
void ProbeExp(const float* a, float* out) { Store(out, Exp(Load(a))); }

constexpr SimdProbe MakeProbe(const char* name, bool fused) {
  return {name,           fused,     ProbeZero,          ProbeSet1,     ProbeLoadStore,     ProbeAdd,
          ProbeSub,       ProbeMul,  ProbeDiv,           ProbeMax,      ProbeMin,           ProbeFma,
          ProbeRound,     ProbePow2, ProbeZeroWhereLess, ProbeLoadBf16, ProbeLoadBf16Pairs, ProbeReduceAdd,
          ProbeReduceMax, ProbeExp};
}

}  // namespace
}  // namespace mla::testing
