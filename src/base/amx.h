// AMX's tiles. Plain types alone: this header is compiled under every instruction set's flags.
#ifndef MLA_BASE_AMX_H_
#define MLA_BASE_AMX_H_

#include <stdint.h>

namespace mla::amx {

// What ldtilecfg reads (Intel's manual, volume 2, LDTILECFG): all eight tiles of 16 rows by 64 bytes.
struct __attribute__((packed)) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace mla::amx

#endif  // MLA_BASE_AMX_H_
