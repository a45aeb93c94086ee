// The quantised GEMM with vpdpbusd on 256 bits (quant_dpbusd_inl.h). As int8_avxvnni_inl.h, it is included inside an unnamed
// namespace with CHORAL_DPBUSD and, here, CHORAL_QUANT_TARGET defined. No include guard.

#define CHORAL_SIMD CHORAL_QUANT_TARGET __attribute__((always_inline)) inline

#include "kernels/x86/simd256_inl.h"

#define CHORAL_VECTORS Simd256
#include "kernels/x86/quant_dpbusd_inl.h"

struct Simd : ByteProducts {
  static constexpr const char* kName = "avx vnni";
  static constexpr int tile_rows(QuantForm) { return 6; }  // 6 x 2 sums, 2 weights, x and a mask are the 16 registers
  static constexpr int kTilePanels = 1;
  static constexpr int kPrefetchBytes = 2048;
  static constexpr bool kSumsInRegisters = false;  // of floats, between blocks
};

#include "kernels/x86/quant_kernel_inl.h"
