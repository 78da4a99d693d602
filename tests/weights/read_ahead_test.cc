// What is asked for ahead of the packing: every byte once, in order, within the window.
#include "weights/read_ahead.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "testing/models.h"

namespace mla::weights {
namespace {

using testing::Need;
using testing::TempDir;

// Zeros of that type and shape, as a file without them on the disk: nobody reads them here.
void WriteSparse(const std::string& path, const std::vector<io::SafetensorsSpec>& specs) {
  const std::vector<std::byte> piece(1 << 20);
  io::SafetensorsWriter writer = Need(io::SafetensorsWriter::Create(path, specs));
  for (const io::SafetensorsSpec& spec : specs) {
    std::int64_t left = static_cast<std::int64_t>(DTypeBytes(spec.dtype));
    for (const std::int64_t dim : spec.shape) left *= dim;
    for (; left > 0; left -= std::min<std::int64_t>(left, 1 << 20)) {
      Need(writer.Append({piece.data(), static_cast<std::size_t>(std::min<std::int64_t>(left, 1 << 20))}));
    }
  }
  Need(writer.Finish());
}

TEST(ReadAhead, EveryByteOnceInOrderWithinTheWindow) {
  const TempDir dir;
  // The second is larger than the window; the fourth is in fp8.
  WriteSparse(dir.File("model.safetensors"), {{"c", DType::kF32, {1000}},
                                              {"b", DType::kBF16, {35, 1 << 20}},
                                              {"a", DType::kF16, {3}},
                                              {"d", DType::kF8E4M3, {1 << 10, 1 << 10}},
                                              {"d_scale_inv", DType::kF32, {8, 8}}});
  const io::Checkpoint checkpoint = Need(io::Checkpoint::Open(dir.path()));
  const std::vector<std::string> names = {"c", "b", "not there", "d", "a", "c"};
  const std::vector<std::string> order = {"c", "b", "d_scale_inv", "d", "a", "c"};
  std::size_t at = 0;
  std::int64_t within = 0;
  std::int64_t asked = 0;
  ReadAhead ahead(checkpoint, names, [&](const io::Tensor& tensor, std::int64_t begin, std::int64_t end) {
    ASSERT_LT(at, order.size());
    ASSERT_EQ(tensor.name, order[at]);
    ASSERT_EQ(begin, within);
    ASSERT_LE(end, tensor.bytes);
    asked += end - begin;
    within = end;
    if (end == tensor.bytes) {
      ++at;
      within = 0;
    }
  });
  std::int64_t all = 0;
  for (const std::string& name : order) all += checkpoint.Find(name)->bytes;
  EXPECT_EQ(ahead.bytes(), all);
  for (std::int64_t done = 0; done <= all; done += 777777) {
    ahead.Advance(done);
    ASSERT_EQ(asked, std::min(all, done + ReadAhead::kWindow));
  }
  EXPECT_EQ(asked, all);
  EXPECT_EQ(at, order.size());
}

}  // namespace
}  // namespace mla::weights
