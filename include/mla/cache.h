// The paged latent cache: one row [latent | rope] per token and layer, in pages that sequences share out among them.
// Three parts that know nothing of each other's work: the layout (bytes), the pool (page ids), the storage (memory).
#ifndef MLA_CACHE_H_
#define MLA_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mla/dtypes.h"
#include "mla/executor.h"
#include "mla/memory.h"
#include "mla/result.h"

namespace mla {

inline constexpr std::int64_t kDefaultPageTokens = 64;

// A part of a cache row.
struct CacheSegment {
  const char* name = "";  // "latent", "rope"
  std::int64_t elements = 0;
  DType dtype = DType::kBF16;  // kBF16 or kF32
  std::int64_t offset = 0;     // bytes from the row's start
};

// Where a row's bytes lie. Storage is [layer][page][token of the page][row], rows row_bytes apart.
struct CacheLayout {
  // Rows start at multiples of this: half a cache line, which every published model's row fills exactly in bf16.
  static constexpr std::int64_t kRowAlignment = 32;

  std::vector<CacheSegment> segments;  // in row order
  std::int64_t row_bytes = 0;          // with padding to kRowAlignment
  std::int64_t page_tokens = kDefaultPageTokens;
  std::int64_t layers = 0;

  // Where the next row starts, after one that fills `used` bytes.
  static constexpr std::int64_t Stride(std::int64_t used) {
    return (used + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  }

  std::int64_t page_bytes() const { return page_tokens * row_bytes; }  // one layer's
  std::int64_t bytes_per_token() const { return layers * row_bytes; }
  // Whole pages for so many tokens.
  std::int64_t PagesFor(std::int64_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
  // Bytes of storage for so many pages.
  std::int64_t StorageBytes(std::int64_t pages) const { return layers * pages * page_bytes(); }
};

// The layout of an MLA model: the normed latent, then the rotated k_pe (none where rope_dim is 0). All dims positive
// but rope_dim; dtype kBF16 or kF32. A violated precondition aborts.
CacheLayout MakeLatentLayout(std::int64_t kv_lora_rank, std::int64_t qk_rope_head_dim, std::int64_t layers, DType dtype,
                             std::int64_t page_tokens = kDefaultPageTokens);

// Hands out page ids in [0, pages) and counts who holds them. Holds no memory of rows. Not thread-safe: the
// scheduler's.
class PagePool {
 public:
  // Precondition: 0 <= pages < 2^31. Throws std::bad_alloc where memory for the counts can't be had.
  explicit PagePool(std::int64_t pages);
  // What it allocates.
  static std::int64_t Bytes(std::int64_t pages) {
    return pages * static_cast<std::int64_t>(2 * sizeof(std::int32_t) + sizeof(std::uint8_t));
  }

  // A page with one holder, or -1 where none is free: a normal answer that the scheduler acts on.
  std::int32_t Take();
  // One holder more; the page is held.
  void Share(std::int32_t page);
  // One holder less; the last one frees the page.
  void Release(std::int32_t page);

  // One holder more, who gives the page up when it is needed (PrefixIndex); at most one such holder a page.
  void Keep(std::int32_t page);
  // That holder gives it up.
  void Drop(std::int32_t page);

  std::int64_t pages() const { return static_cast<std::int64_t>(holders_.size()); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  // Pages whose only holder is the one that gives them up.
  std::int64_t idle_pages() const { return idle_; }
  bool idle(std::int32_t page) const { return holders(page) == 1 && kept(page); }
  bool kept(std::int32_t page) const;
  std::int32_t holders(std::int32_t page) const;  // all of them

 private:
  std::int64_t idle_ = 0;
  std::vector<std::int32_t> holders_;
  std::vector<std::uint8_t> kept_;
  std::vector<std::int32_t> free_;  // as a stack: the page freed last is warm, and goes out first
};

// One layer's rows, for kernels. A slot is page * page_tokens + token of the page; its row starts at
// data + slot * row_bytes, as a layer's pages lie one after another.
struct CacheLayerView {
  std::byte* data = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t page_tokens = 0;
  std::int64_t pages = 0;
  DType dtype = DType::kBF16;
  std::int64_t latent_elements = 0;
  std::int64_t rope_elements = 0;
  std::int64_t rope_offset = 0;  // bytes from the row's start

  std::byte* Row(std::int64_t slot) const { return data + slot * row_bytes; }
};

// The memory of all layers' pages. Rows may be read and written from several threads, each row by one at a time.
class LatentCache {
 public:
  // Precondition: pages >= 0, and the layout's bytes fit in 63 bits. Fails where the memory can't be had. Pages are
  // zero until written, and taken from the system then.
  static Result<LatentCache> Create(const CacheLayout& layout, std::int64_t pages,
                                    HugePages huge_pages = HugePages::kAuto);

  LatentCache(LatentCache&&) noexcept;
  LatentCache& operator=(LatentCache&&) noexcept;
  ~LatentCache();

  const CacheLayout& layout() const;
  std::int64_t pages() const;
  // What was allocated: layout().StorageBytes(pages()).
  std::int64_t bytes() const;
  // Takes pages [0, pages) of every layer, not written yet, from the system, by all workers: steps then don't wait for
  // that. Page pools give these out first.
  void FirstTouch(std::int64_t pages, Executor& executor);
  // Copies the first `tokens` rows of page `from`, of every layer, to page `to`. Precondition: different pages.
  void CopyRows(std::int32_t from, std::int32_t to, std::int64_t tokens);
  // Precondition: layer is in [0, layout().layers).
  CacheLayerView Layer(std::int64_t layer) const;

 private:
  struct Impl;
  explicit LatentCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Rounds latent [R] and rope [P] into the row of `slot`: the only writer of rows. Every reader, the step that wrote it
// included, sees the rounded values.
void WriteCacheRow(const CacheLayerView& layer, std::int64_t slot, const float* latent, const float* rope);

// Widens a row back to floats: latent [R], rope [P].
void ReadCacheRow(const CacheLayerView& layer, std::int64_t slot, float* latent, float* rope);

}  // namespace mla

#endif  // MLA_CACHE_H_
