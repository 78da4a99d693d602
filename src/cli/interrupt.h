// Ctrl-C as a question that loops ask.
#ifndef MLA_CLI_INTERRUPT_H_
#define MLA_CLI_INTERRUPT_H_

namespace mla::cli {

// Catches SIGINT while it lives; one at a time. At first an interrupt ends the process at once, with 130; after Defer
// it makes Requested true, and a second one ends the process. A SIGINT that the parent had ignored stays ignored.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  void Defer();
  bool Requested() const;
};

}  // namespace mla::cli

#endif  // MLA_CLI_INTERRUPT_H_
