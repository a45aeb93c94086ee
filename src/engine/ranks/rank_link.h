// What carries messages between processes that are ranks of one model. Messages of one rank to another arrive in the order in
// which they were sent. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace choral::engine {

class RankLink {
 public:
  // Something that was begun and goes on beside.
  using Transfer = uint64_t;
  enum class Progress { kGoesOn, kDone, kFailed };
  struct Message {
    int tag = 0;
    int64_t bytes = 0;
  };

  virtual ~RankLink() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // The bytes stay where they are until it is done.
  virtual Transfer send(int to, int tag, std::string_view bytes) = 0;
  // The next message of that rank, of at most so many bytes.
  virtual Transfer receive(int from, char* room, int64_t bytes) = 0;
  // Once it is done or failed it is forgotten. `message`: what was received.
  virtual Progress look(Transfer transfer, Message& message) = 0;
  // Whether the next message of that rank is there to be received.
  virtual bool peek(int from, Message& message) = 0;
  // All ranks end now: each waits for the others. Without this call one that ends leaves the others, and mpirun ends them.
  virtual void end_together() = 0;
};

// Which of how many processes mpirun started this one as; 0 of 1: none.
int mpi_rank();
int mpi_ranks();
// The link between them; null: there is one process. Once in a process.
Result<std::shared_ptr<RankLink>> open_mpi_link();

}  // namespace choral::engine
