// Runs a fuzz entry point over its seeds without libFuzzer, so that every build checks them:
// each seed as it is, cut short at 16 places, and with one byte changed at 16 places. A crash or a failed check ends the program.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kPlaces = 16;

// A copy of exactly this size on the heap: a sanitizer sees every read past its end.
void run(const std::vector<uint8_t>& bytes) {
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

int run_seed(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return 0;
  }
  std::vector<uint8_t> seed(std::istreambuf_iterator<char>(in), {});
  run(seed);
  for (size_t i = 0; i < kPlaces; ++i) {
    const size_t place = seed.size() * i / kPlaces;
    run({seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(place)});
    if (seed.empty()) break;
    const uint8_t kept = seed[place];
    seed[place] = static_cast<uint8_t>(kept ^ (1u << (i % 8)));
    run(seed);
    seed[place] = kept;
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  run({});
  int seeds = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) continue;
    for (const auto& file : std::filesystem::directory_iterator(argv[i])) {
      if (file.is_regular_file()) seeds += run_seed(file.path());
    }
  }
  std::printf("%d seeds\n", seeds);
  return seeds > 0 ? 0 : 1;  // a target without seeds is unfinished
}
