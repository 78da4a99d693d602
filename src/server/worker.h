// A thread that does jobs in turn: what takes too long for the thread that answers everybody.
#ifndef MLA_SERVER_WORKER_H_
#define MLA_SERVER_WORKER_H_

#include <functional>
#include <memory>

namespace mla::server {

class Worker {
 public:
  Worker();
  // Ends after the job at hand; those that wait are dropped.
  ~Worker();
  // Any thread. The job does not throw.
  void Post(std::function<void()> job);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla::server

#endif  // MLA_SERVER_WORKER_H_
