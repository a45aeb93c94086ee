// The CUDA plug-in under test: the emulated one of this tree, or a real one, whose device CHORAL_TEST_CUDA_DEVICE names ("cuda")
// and whose folder CHORAL_TEST_CUDA. Nothing, where not even the emulation can be built.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "plugins/plugin_engine.h"
#include "support/test_paths.h"

#ifdef CHORAL_TEST_CUDA

namespace choral::plugins {

inline const std::string& cuda_device() {
  static const std::string name = choral::testing::from_environment("CHORAL_TEST_CUDA_DEVICE", "cuda_emulated");
  return name;
}
inline const std::string& cuda_folder() {
  static const std::string folder = choral::testing::from_environment("CHORAL_TEST_CUDA", CHORAL_TEST_CUDA);
  return folder;
}

class OnCuda : public PluginTest {
  const Variable path_{"CHORAL_PLUGIN_PATH", cuda_folder()};
};

// Faults that only the emulated device can have.
class OnEmulatedCuda : public OnCuda {
 protected:
  void SetUp() override {
    if (cuda_device() != "cuda_emulated") GTEST_SKIP() << "a device is as it is";
  }
};

// What the loaded plug-in's emulation has broken from now on, and how often it called before what was to fail
// (plugins/cuda/emulation/faults.h).
inline int64_t break_emulated_cuda(const std::string& faults) {
  const std::string library = cuda_folder() + "/libchoral_plugin_cuda_emulated.so";
  void* loaded = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  EXPECT_NE(loaded, nullptr) << dlerror();
  if (loaded == nullptr) return 0;
  const auto change = reinterpret_cast<int64_t (*)(const char*)>(dlsym(loaded, "choral_break_emulated_cuda"));
  EXPECT_NE(change, nullptr) << dlerror();
  const int64_t calls = change == nullptr ? 0 : change(faults.c_str());
  dlclose(loaded);
  return calls;
}

}  // namespace choral::plugins

#endif
