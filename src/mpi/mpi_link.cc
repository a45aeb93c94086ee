// Ranks that mpirun started, which tell each other by MPI: shared memory within a machine, TCP or what there is between machines.
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <vector>

#include "engine/ranks/rank_link.h"

namespace choral::engine {
namespace {

class MpiLink : public RankLink {
 public:
  MpiLink() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  ~MpiLink() override {
    if (ends_together_) MPI_Finalize();  // waits for the others
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  Transfer send(int to, int tag, std::string_view bytes) override {
    return begin(bytes.size(), [&](int count, MPI_Request& request) {
      return MPI_Isend(bytes.data(), count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
    });
  }

  Transfer receive(int from, char* room, int64_t bytes) override {
    return begin(static_cast<uint64_t>(bytes), [&](int count, MPI_Request& request) {
      return MPI_Irecv(room, count, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    });
  }

  Progress look(Transfer transfer, Message& message) override {
    Slot& slot = slots_[transfer];
    int done = 0;
    MPI_Status status = {};
    const bool failed = slot.failed || MPI_Test(&slot.request, &done, &status) != MPI_SUCCESS;
    if (!failed && done == 0) return Progress::kGoesOn;
    free_.push_back(transfer);
    if (failed) return Progress::kFailed;
    message = read(status);
    return Progress::kDone;
  }

  bool peek(int from, Message& message) override {
    int is_there = 0;
    MPI_Status status = {};
    if (MPI_Iprobe(from, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &status) != MPI_SUCCESS || is_there == 0) return false;
    message = read(status);
    return true;
  }

  void end_together() override { ends_together_ = true; }

 private:
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    bool failed = false;
  };

  template <class Begin>
  Transfer begin(uint64_t bytes, const Begin& begin_request) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const Transfer transfer = free_.back();
    free_.pop_back();
    Slot& slot = slots_[transfer];
    slot.request = MPI_REQUEST_NULL;
    slot.failed = bytes > INT_MAX || begin_request(static_cast<int>(bytes), slot.request) != MPI_SUCCESS;
    return transfer;
  }

  static Message read(const MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    return {status.MPI_TAG, count};
  }

  int rank_ = 0, ranks_ = 1;
  bool ends_together_ = false;
  std::vector<Slot> slots_;
  std::vector<Transfer> free_;  // of slots_
};

}  // namespace
}  // namespace choral::engine

// The process' link, which the caller deletes; null: `why` says what MPI lacks.
extern "C" __attribute__((visibility("default"))) choral::engine::RankLink* choral_open_mpi_link(char* why, size_t size) {
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
    std::snprintf(why, size, "MPI can't be started so that several threads may call it in turn");
    return nullptr;
  }
  return new choral::engine::MpiLink;
}
