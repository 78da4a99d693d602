// A checkpoint's files, held to its config: what loading takes.
#ifndef MLA_TESTS_WEIGHTS_OPENED_H_
#define MLA_TESTS_WEIGHTS_OPENED_H_

#include <string>

#include "contract/config.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "testing/models.h"

namespace mla::weights {

struct Opened {
  contract::ModelConfig config;
  io::Checkpoint checkpoint;
};

inline Opened Open(const std::string& dir) {
  Opened opened{testing::Need(contract::LoadConfig(dir)), testing::Need(io::Checkpoint::Open(dir))};
  testing::Need(contract::RequireTensors(opened.config, opened.checkpoint));
  return opened;
}

}  // namespace mla::weights

#endif  // MLA_TESTS_WEIGHTS_OPENED_H_
