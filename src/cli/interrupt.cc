#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "cli/app.h"

namespace mla::cli {
namespace {

// A signal handler has no argument to carry this: the one exception to "no globals".
volatile sig_atomic_t interrupted = 0;

void OnInterrupt(int /*signal*/) {
  if (interrupted != 0) _exit(kInterrupted);
  interrupted = 1;
}

}  // namespace

InterruptScope::InterruptScope() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

InterruptScope::~InterruptScope() { signal(SIGINT, SIG_DFL); }

bool InterruptScope::Requested() const { return interrupted != 0; }

}  // namespace mla::cli
