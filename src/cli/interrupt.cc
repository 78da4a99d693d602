#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "cli/app.h"

namespace mla::cli {
namespace {

// A signal handler has no argument to carry this: the one exception to "no globals".
volatile sig_atomic_t interrupted = 0;
volatile sig_atomic_t deferred = 0;

void OnInterrupt(int /*signal*/) {
  if (deferred == 0 || interrupted != 0) _exit(kInterrupted);
  interrupted = 1;
}

}  // namespace

InterruptScope::InterruptScope() {
  interrupted = 0;
  deferred = 0;
  struct sigaction before = {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

InterruptScope::~InterruptScope() {
  struct sigaction now = {};
  sigaction(SIGINT, nullptr, &now);
  if (now.sa_handler == OnInterrupt) signal(SIGINT, SIG_DFL);
}

void InterruptScope::Defer() { deferred = 1; }

bool InterruptScope::Requested() const { return interrupted != 0; }

}  // namespace mla::cli
