// The tensors that a config promises, as data; and a checkpoint held against them.
#ifndef MLA_CONTRACT_TENSORS_H_
#define MLA_CONTRACT_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/dtypes.h"
#include "mla/result.h"

namespace mla::contract {

struct TensorSpec {
  std::string name;                 // Hugging Face's
  std::vector<std::int64_t> shape;  // [out, in] for products, [n] for norms and biases
  bool required = true;             // false: may be missing, another tensor then serves
  bool active = true;               // false: in the checkpoint, not in a token's path (MTP)
  bool product = false;             // true: may be in fp8, with scales beside it (contract/fp8.h)
  std::int64_t expert = -1;         // index of a routed expert, else -1
};

// Every tensor of the model, in the order a token meets them; MTP layers last.
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

struct TensorReport {
  std::vector<std::string> missing;     // "NAME: expected [2048, 256]"
  std::vector<std::string> mismatched;  // "NAME: expected [..] of F32, F16 or BF16, found [..] of I8 in FILE"
  std::vector<std::string> extra;       // "NAME [..] of BF16 in FILE"
  bool ok() const { return missing.empty() && mismatched.empty() && extra.empty(); }
};

// Compares the two whole, scales of fp8 included; no tensor's bytes are read. Tensors known to be harmless
// (rotary_emb.inv_freq) are no extras.
TensorReport CheckTensors(const ModelConfig& config, const io::Checkpoint& checkpoint);

// One error that lists every fault (the first 20 of a kind, then a count); Ok where there is none.
Status RequireTensors(const ModelConfig& config, const io::Checkpoint& checkpoint);

struct ParameterCount {
  std::int64_t total = 0;  // of the main model
  // Read for one token: the top-k experts of each MoE layer; of an embedding that is not the head too, one row.
  std::int64_t active = 0;
  std::int64_t mtp = 0;  // of MTP layers, in addition
};
ParameterCount CountParameters(const ModelConfig& config);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_TENSORS_H_
