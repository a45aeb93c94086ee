// What the quantised GEMM's kernels have alike that multiply by vpdpbusd, which adds four u8 x s8 products to each int32 lane
// without saturation: weights are the unsigned operand as stored (w + zero), and sums begin at -zero * sum(q), which
// quantise_rows left beside x. Included inside an unnamed namespace behind simd256_inl.h or simd512_inl.h, with CHORAL_VECTORS
// defined as the struct of that one and CHORAL_DPBUSD as the intrinsic of its width and encoding. No include guard.

struct ByteProducts : CHORAL_VECTORS {
  static constexpr int zero(QuantForm form) { return form.zero(); }
  // 4 bits are unpacked on the way, on ports that the multiplies leave free; the others and codes, which take more, become bytes
  // first. An unpacked chunk is read as packed bytes are.
  static constexpr bool reads_packed(QuantForm form) { return form.value_bits() == 4 || form.bits == 8; }
  static constexpr int tile_bits(int bits) { return bits == 4 ? 4 : 8; }
  static CHORAL_SIMD Bytes recentre(Bytes stored) { return stored; }

  template <int kBits>
  struct Weight {
    Bytes u;
    CHORAL_SIMD void set(Bytes v) {
      asm("" : "+v"(v));  // in a register, once: g++ 12 loads it for every row otherwise
      u = v;
    }
    CHORAL_SIMD void load(const uint8_t* p) { set(CHORAL_VECTORS::load(p)); }
  };
  template <int kBits>
  struct Sum {
    Ints i;
    CHORAL_SIMD void begin(int32_t start) { i = splat_int(start); }
    template <int kLocal>
    CHORAL_SIMD void add(const Weight<kBits>& w, Bytes x) {
      Bytes next = CHORAL_DPBUSD(i, w.u, x);
      asm("" : "+v"(next));  // stays in its register
      i = next;
    }
    template <bool kStarts>
    CHORAL_SIMD Bytes total(int32_t) const {
      return i;
    }
  };
};
