// libchoral_mpi.so (src/mpi) is opened when mpirun started this program, and never else.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/opened_library.h"
#include "engine/ranks/rank_link.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libchoral_mpi.so";

// What Open MPI, and what MPICH and its kin tell a process.
int number_of(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return otherwise;
}

// Beside the program, as in a build, or where it is installed.
fs::path library_path() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places{folder, folder / "../lib/choral", folder / "../lib64/choral"};
  for (fs::directory_iterator at(folder / "../lib", error), end; !error && at != end; at.increment(error)) {
    places.push_back(at->path() / "choral");  // Debian's folder of an architecture
  }
  for (const auto& place : places) {
    if (fs::exists(place / kFile, error)) return place / kFile;
  }
  return {};
}

}  // namespace

int mpi_rank() { return mpi_ranks() > 1 ? number_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0) : 0; }

int mpi_ranks() { return number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }

Result<std::shared_ptr<RankLink>> open_mpi_link() {
  if (mpi_ranks() <= 1) return std::shared_ptr<RankLink>();
  const fs::path path = library_path();
  if (path.empty()) {
    return unsupported(
        "mpirun started {} processes, and this program was built without MPI: install libopenmpi-dev, then ./dev build",
        mpi_ranks());
  }
  // MPI's own parts look for its names among those that all may see.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return unsupported("{} can't be opened: {}", path.string(), dlerror());
  RankLink* (*open)(char*, size_t) = nullptr;
  CHORAL_RETURN_IF_ERROR((OpenedLibrary{library, kFile, "; build it anew"}.find("choral_open_mpi_link", open)));
  std::array<char, 256> why{};
  std::shared_ptr<RankLink> link(open(why.data(), why.size()));
  if (link == nullptr) return unsupported("{}", why.data());
  return link;
}

}  // namespace choral::engine
