// Adapters' shares of a layer, computed along with the layer's product (companion.h): every thread has a run of the shares and
// goes through their panels from front to back, shrinking and expanding as the bytes come. y is not finished then, so what is to
// be added waits in `deltas`.
#pragma once

#include <compare>

#include "kernels/gemm/companion.h"
#include "kernels/lora/lora_batch.h"

namespace choral::kernels {

// All that a voice's adapters do to some consecutive rows.
struct LoRAShare {
  std::span<const LoRAShrink> shrinks;  // make the middles of expand.terms, one each
  LoRAExpand expand;
};

class LoRACompanion final : public Companion {
 public:
  // Nothing is computed unless a product asks. Memory is of ctx.scratch; `shares` and it outlive this.
  LoRACompanion(const Context& ctx, std::span<const LoRAShare> shares);

  int64_t bytes_left() const override;
  std::span<const std::byte> fetch(int thread, int64_t most) override;
  void work(int thread) override;

  // After the product: completes the shares that were begun and adds them to y. The others are for the caller.
  void finish();
  bool was_begun(int64_t share) const;

 private:
  // A place in the panels of one term of one share.
  struct Place {
    int64_t share = 0;
    size_t term = 0;
    int64_t bytes = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // One thread's run of shares: those before done.share are complete.
  struct alignas(64) Run {
    int64_t begin = 0, end = 0;
    Place fetched;  // all before has been asked for
    Place ready;    // what `fetched` was when work() was called last
    Place done;     // all before is computed
  };

  const LoRAMatrix& matrix(const Place& at) const;
  MatrixView<float> deltas(int64_t share, size_t term) const;
  void skip_complete(Place& at) const;
  // Computes the piece at `at` and moves on to the next.
  void do_piece(Place& at) const;

  const Context& ctx_;
  std::span<const LoRAShare> shares_;
  std::span<float*> deltas_;  // of a share: [terms][rows][out]
  std::span<Run> runs_;
};

}  // namespace choral::kernels
