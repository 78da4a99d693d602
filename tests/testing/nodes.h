// A machine of several nodes of memory, simulated: real threads that say where they stand.
#ifndef MLA_TESTS_TESTING_NODES_H_
#define MLA_TESTS_TESTING_NODES_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/numa.h"
#include "mla/executor.h"

namespace mla::testing {

class NodesExecutor final : public Executor {
 public:
  // Workers by turns on the nodes, so that neighbours stand apart.
  NodesExecutor(int threads, int nodes) : pool_(MakeThreadPool(threads)), nodes_(std::min(nodes, threads)) {}
  int workers() const override { return pool_->workers(); }
  int nodes() const override { return nodes_; }
  int node_of(int worker) const override { return worker % nodes_; }
  int system_node(int node) const override { return node; }  // there may be no such memory: harmless
  void Run(std::int64_t tasks, TaskFn fn, void* context) override { pool_->Run(tasks, fn, context); }

 private:
  std::unique_ptr<Executor> pool_;
  int nodes_;
};

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_NODES_H_
