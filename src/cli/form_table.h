// The table that `--mode auto` chooses by.
#ifndef MLA_CLI_FORM_TABLE_H_
#define MLA_CLI_FORM_TABLE_H_

#include <string>

#include "bench/tune_file.h"
#include "cli/command.h"
#include "cli/compute_options.h"
#include "mla/attention.h"
#include "mla/result.h"

namespace mla::cli {

// Where `mla tune` writes and other commands look: mla/tune.json in $XDG_CACHE_HOME, or in ~/.cache; "" where the
// environment names neither.
std::string DefaultTunePath();

// What a table of these options is measured with. `kernels`: an instruction set's name. Threads are recorded and never
// compared: no bit may depend on their number, and so no choice of form.
bench::TuneMachine TuneMachineOf(const ComputeOptions& options, const std::string& kernels, int threads);

// The file of --tune-table; else the one at DefaultTunePath, if it is there; else the shipped table, as also for
// --tune-table shipped. Fails where the file asked for can't be read or was measured on another processor or with other
// kernels, rows or weights. The default one, or one of another build, is then passed over with a warning.
Result<FormTable> ChooseFormTable(const ComputeOptions& options, const Log& log);

}  // namespace mla::cli

#endif  // MLA_CLI_FORM_TABLE_H_
