// Ctrl-C as a question that loops ask.
#ifndef MLA_CLI_INTERRUPT_H_
#define MLA_CLI_INTERRUPT_H_

namespace mla::cli {

// Catches SIGINT while it lives; one at a time. The first makes Requested true, a second one ends the process at once
// with 130.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool Requested() const;
};

}  // namespace mla::cli

#endif  // MLA_CLI_INTERRUPT_H_
