// Makes the reads of a mapped file survive the file's being cut while it is read: the kernel says SIGBUS to whoever touches a
// page that the file no longer has (or that the disk fails to give), which would end the process. While a MappingGuard stands
// over a mapping, the handler puts zeros in the place of what is lost, from the page touched to the mapping's end, and marks the
// guard as torn; the read goes on and whoever reads asks torn() afterwards.
//
// The handler is the process's: it is installed with the first guard and stays. It looks only at addresses within guarded
// mappings and hands every other SIGBUS to the handler that was there before, or to the default, which ends the process as
// before. A program that installs a handler of its own later must do the same towards this one. What the handler reads, a list of
// ranges of atomics that never shrinks, is the one piece of global state of this folder: a signal handler gets no argument.
// Thread-safe; the handler runs on the thread that read.
#pragma once

#include <cstddef>
#include <span>

namespace choral::io {

struct GuardedRange;  // an entry of the list

class MappingGuard {
 public:
  // `mapping` begins at a page, is private and stays mapped as long as this. It may be empty.
  explicit MappingGuard(std::span<const std::byte> mapping);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  bool torn() const;

 private:
  GuardedRange* range_ = nullptr;
};

}  // namespace choral::io
