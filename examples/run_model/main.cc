// run_model MODEL_DIR PROMPT: what the model says next.
#include <cstdio>

#include "mla/engine.h"
#include "mla/model.h"
#include "mla/tokenizer.h"

mla::Status Continue(const char* dir, const char* prompt) {
  const auto executor = mla::MakeThreadPool(2);
  MLA_ASSIGN_OR_RETURN(const mla::Tokenizer tokenizer, mla::Tokenizer::Load(dir));
  MLA_ASSIGN_OR_RETURN(const mla::Model model, mla::Model::Load(dir, {}, *executor));
  MLA_ASSIGN_OR_RETURN(mla::Engine engine, mla::Engine::Create(model, {}, *executor));
  MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer.Encode(prompt));
  if (tokenizer.add_bos() && tokenizer.bos_id()) ids.insert(ids.begin(), *tokenizer.bos_id());
  mla::Request request{
      .prompt = ids, .max_tokens = 40, .sampling = model.info().sampling, .eos_ids = model.info().eos_ids};
  mla::StreamDecoder decoder(tokenizer);
  std::printf("%s", prompt);
  const auto print = [&](std::int32_t id, float /*logprob*/) {
    return std::printf("%s", decoder.Push(id).c_str()) >= 0;
  };
  const auto completion = engine.Generate(request, print);
  std::printf("%s\n", decoder.Finish().c_str());
  return completion.ok() ? mla::Status() : completion.error();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: run_model MODEL_DIR PROMPT\n"), 2;
  const mla::Status status = Continue(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
