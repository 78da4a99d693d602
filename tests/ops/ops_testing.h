// Helpers of the ops tests: random data, packed weights, the instruction sets of this machine.
#ifndef MLA_TESTS_OPS_OPS_TESTING_H_
#define MLA_TESTS_OPS_OPS_TESTING_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "mla/dtypes.h"
#include "mla/executor.h"
#include "ops/gemm.h"
#include "ops/packed.h"

namespace mla::testing {

inline std::vector<Isa> MachineIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : kIsas) {
    if (DetectCpu().Has(isa)) isas.push_back(isa);
  }
  return isas;
}

// Those that take every source.
inline constexpr ops::PackedFormat kFormats[] = {ops::PackedFormat::kF32, ops::PackedFormat::kBF16};

inline constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();

// Floats of both signs and magnitudes over six powers of two, so that the order of a sum shows in its bits.
inline std::vector<float> RandomFloats(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-2.0F, 2.0F);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = mantissa(random) / static_cast<float>(1U << (random() % 6));
  return values;
}

// What a packed element holds of a weight.
inline float Stored(ops::PackedFormat format, float w) {
  return format == ops::PackedFormat::kF32 ? w : FloatFromBf16(Bf16FromFloat(w));
}

// What a product reads of an element of x.
inline float Read(Isa isa, ops::PackedFormat format, float x) {
  return ops::KernelsFor(isa).bf16_inputs && format != ops::PackedFormat::kF32 ? FloatFromBf16(Bf16FromFloat(x)) : x;
}

// W [n, k] packed from floats, with its memory.
struct Packed {
  Buffer buffer;
  ops::PackedMatrix matrix;
};

inline Packed Pack(ops::PackedFormat format, const std::vector<float>& w, std::int64_t n, std::int64_t k) {
  Packed packed;
  packed.buffer = std::move(Buffer::Allocate(ops::PackedBytes(format, n, k), "packed")).value();
  packed.matrix = {format, n, k, packed.buffer.data()};
  const ops::MatrixSource source = {DType::kF32, reinterpret_cast<const std::byte*>(w.data()), k, 1};
  ops::PackPanels(source, 0, n, packed.matrix, 0, ops::Panels(n));
  return packed;
}

// A pool's products, with the scratch that they need: NaN at first, then what the test's products before have left.
class Products {
 public:
  static constexpr std::int64_t kInputs = 4 << 20;

  Products(Executor& executor, const ops::OpKernels& kernels)
      : executor_(executor), kernels_(kernels), scratch_(Scratch(executor.workers() * ops::kGemmScratch + kInputs)) {}
  void operator()(std::span<const ops::GemmProblem> problems) {
    std::byte* inputs = scratch_ + executor_.workers() * ops::kGemmScratch;
    ops::Gemm({executor_, kernels_, {scratch_, inputs, room_}}, problems);
  }
  // Bytes of packed inputs that there is room for.
  void SetRoom(std::int64_t bytes) { room_ = bytes; }
  void operator()(const ops::GemmProblem& problem) { (*this)(std::span<const ops::GemmProblem>(&problem, 1)); }

 private:
  // The process's own: filling so much for each product would take longer than the product.
  static std::byte* Scratch(std::int64_t bytes) {
    static Buffer buffer;
    if (buffer.bytes() < bytes) {
      buffer = std::move(Buffer::Allocate(bytes, "scratch")).value();
      std::memset(buffer.data(), 0xff, static_cast<std::size_t>(bytes));  // NaN
    }
    return buffer.data();
  }

  Executor& executor_;
  const ops::OpKernels& kernels_;
  std::int64_t room_ = kInputs;
  std::byte* scratch_;
};

inline bool SameBits(const float* a, const float* b, std::int64_t n) {
  return n == 0 || std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

inline const char* FormatName(ops::PackedFormat format) {
  constexpr const char* kNames[] = {"f32", "bf16", "f8"};
  return kNames[static_cast<int>(format)];
}

}  // namespace mla::testing

#endif  // MLA_TESTS_OPS_OPS_TESTING_H_
