#include "cli/streamer.h"

#include "cli/output.h"

namespace mla::cli {

Streamer::Streamer(const Tokenizer* tokenizer, bool print) : print_(print) {
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
}

Status Streamer::Show(const std::string& piece) {
  if (!print_ || piece.empty()) return {};
  MLA_RETURN_IF_ERROR(WriteOut(piece));
  return FlushOut();
}

Status Streamer::Push(std::int32_t id) {
  if (!decoder_) {
    const std::string piece = (first_ ? "" : ",") + std::to_string(id);
    first_ = false;
    return Show(piece);
  }
  const std::string piece = decoder_->Push(id);
  text_ += piece;
  return Show(piece);
}

Status Streamer::Finish() {
  if (decoder_) {
    const std::string piece = decoder_->Finish();
    text_ += piece;
    MLA_RETURN_IF_ERROR(Show(piece));
  }
  return Show("\n");
}

}  // namespace mla::cli
