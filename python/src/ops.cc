// The LoRA operators on arrays that Python lends: NumPy's, torch's, whatever has DLPack. Nothing is copied.
#include <nanobind/ndarray.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "binding.h"
#include "choral/lora_ops.h"

namespace choral::python {
namespace {

LoRAArray::Type type_of(const char* name, const nb::dlpack::dtype& type) {
  if (type == nb::dtype<float>()) return LoRAArray::Type::kF32;
  if (type == nb::dtype<int32_t>()) return LoRAArray::Type::kI32;
  if (type == nb::dtype<int64_t>()) return LoRAArray::Type::kI64;
  const bool is_half = type.bits == 16 && type.lanes == 1;
  if (is_half && type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float)) return LoRAArray::Type::kF16;
  if (is_half && type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat)) return LoRAArray::Type::kBF16;
  raise(Status(Code::kInvalidArgument, std::string(name) + " has elements of another type, expected float32, float16, bfloat16, "
                                                           "or int32 or int64 for indices and lengths"));
}

template <class Array>
bool is_row_major(const Array& array) {
  int64_t expected = 1;
  bool packed = true;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) == 0) return true;
    packed = packed && (array.shape(i) == 1 || array.stride(i) == expected);
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return packed;
}

// One argument, for the time of a call. Made and dropped with the GIL.
template <class Array>
class Lent {
 public:
  Lent(const char* name, nb::handle given) {
    if (!nb::try_cast(given, array_, /*convert=*/false)) {
      const bool written = !std::is_same_v<Array, nb::ndarray<nb::ro>>;
      raise(Status(Code::kInvalidArgument, std::string(name) + " of type " + nb::type_name(given.type()).c_str() +
                                               " lends no memory; give a NumPy array or a torch tensor" +
                                               (written ? " that may be written to" : "") + ", without gradients (x.detach())"));
    }
    if (array_.device_type() != nb::device::cpu::value) {
      raise(Status(Code::kInvalidArgument, std::string(name) + " lies on a device; give one in the host's memory (x.cpu())"));
    }
    if (!is_row_major(array_)) {
      raise(Status(Code::kInvalidArgument,
                   std::string(name) + " is not contiguous; give x.contiguous(), or numpy.ascontiguousarray(x)"));
    }
    type_ = type_of(name, array_.dtype());
    for (size_t i = 0; i < array_.ndim(); ++i) shape_.push_back(static_cast<int64_t>(array_.shape(i)));
  }

  operator LoRAArray() const { return {array_.data(), type_, shape_}; }
  operator MutableLoRAArray() const requires(!std::is_same_v<Array, nb::ndarray<nb::ro>>) {
    return {array_.data(), type_, shape_};
  }

 private:
  Array array_;
  LoRAArray::Type type_ = LoRAArray::Type::kF32;
  std::vector<int64_t> shape_;
};
using Read = Lent<nb::ndarray<nb::ro>>;
using Written = Lent<nb::ndarray<>>;

// The operators of this process: a forked one does not have the threads of the one that it came from.
class Ops {
 public:
  explicit Ops(int threads) : process_(getpid()), ops_(value_of(LoRAOps::make(threads))) {}
  ~Ops() { leave_to_parent(); }
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  int threads() const { return ops_->threads(); }
  // `call` of the operators, without the GIL.
  template <class Call>
  void run(const Call& call) {
    if (leave_to_parent()) {
      ops_ = value_of(LoRAOps::make(threads_));
      process_ = getpid();
    }
    Status status;
    {
      const nb::gil_scoped_release released;
      status = call(*ops_);
    }
    check(status);
  }

 private:
  // True: this process was forked. The destructor would wait for threads that are not there.
  bool leave_to_parent() {
    if (getpid() == process_) return false;
    static_cast<void>(ops_.release());
    return true;
  }

  pid_t process_;
  std::unique_ptr<LoRAOps> ops_;
  const int threads_ = ops_->threads();
};

}  // namespace

void bind_ops(nb::module_& m) {
  using nb::arg;
  using nb::handle;
  nb::class_<Ops>(m, "LoRAOps")
      .def(nb::init<int>(), arg("threads") = 0)
      .def_prop_ro("threads", &Ops::threads)
      .def("bgmv_shrink",
           [](Ops& self, handle inputs, handle lora_a_weights, handle output_tensor, handle lora_indices_tensor, float scaling) {
             const Read x("inputs", inputs), a("lora_a_weights", lora_a_weights),
                 index("lora_indices_tensor", lora_indices_tensor);
             const Written out("output_tensor", output_tensor);
             self.run([&](LoRAOps& ops) { return ops.bgmv_shrink(x, a, out, index, scaling); });
           })
      .def(
          "bgmv_expand",
          [](Ops& self, handle inputs, handle lora_b_weights, handle output_tensor, handle lora_indices_tensor, bool add_inputs) {
            const Read x("inputs", inputs), b("lora_b_weights", lora_b_weights),
                index("lora_indices_tensor", lora_indices_tensor);
            const Written out("output_tensor", output_tensor);
            self.run([&](LoRAOps& ops) { return ops.bgmv_expand(x, b, out, index, add_inputs); });
          })
      .def(
          "bgmv_expand_slice",
          [](Ops& self, handle inputs, handle lora_b_weights, handle output_tensor, handle lora_indices_tensor,
             int64_t slice_offset, int64_t slice_size, bool add_inputs) {
            const Read x("inputs", inputs), b("lora_b_weights", lora_b_weights),
                index("lora_indices_tensor", lora_indices_tensor);
            const Written out("output_tensor", output_tensor);
            self.run([&](LoRAOps& ops) { return ops.bgmv_expand_slice(x, b, out, index, slice_offset, slice_size, add_inputs); });
          })
      .def(
          "sgmv_shrink",
          [](Ops& self, handle inputs, handle lora_a_weights, handle output_tensor, handle b_seq_start_loc, handle seq_len_tensor,
             handle lora_indices_tensor, int64_t batches, int64_t max_seq_length, int64_t token_nums, float scaling) {
            const Read x("inputs", inputs), a("lora_a_weights", lora_a_weights), start("b_seq_start_loc", b_seq_start_loc),
                length("seq_len_tensor", seq_len_tensor), index("lora_indices_tensor", lora_indices_tensor);
            const Written out("output_tensor", output_tensor);
            self.run([&](LoRAOps& ops) {
              return ops.sgmv_shrink(x, a, out, start, length, index, batches, max_seq_length, token_nums, scaling);
            });
          })
      .def(
          "sgmv_expand",
          [](Ops& self, handle inputs, handle lora_b_weights, handle output_tensor, handle b_seq_start_loc, handle seq_len_tensor,
             handle lora_indices_tensor, int64_t batches, int64_t max_seq_length, int64_t token_nums, bool add_inputs) {
            const Read x("inputs", inputs), b("lora_b_weights", lora_b_weights), start("b_seq_start_loc", b_seq_start_loc),
                length("seq_len_tensor", seq_len_tensor), index("lora_indices_tensor", lora_indices_tensor);
            const Written out("output_tensor", output_tensor);
            self.run([&](LoRAOps& ops) {
              return ops.sgmv_expand(x, b, out, start, length, index, batches, max_seq_length, token_nums, add_inputs);
            });
          })
      .def("sgmv_expand_slice", [](Ops& self, handle inputs, handle lora_b_weights, handle output_tensor, handle b_seq_start_loc,
                                   handle seq_len_tensor, handle lora_indices_tensor, int64_t batches, int64_t max_seq_length,
                                   int64_t token_nums, int64_t slice_offset, int64_t slice_size, bool add_inputs) {
        const Read x("inputs", inputs), b("lora_b_weights", lora_b_weights), start("b_seq_start_loc", b_seq_start_loc),
            length("seq_len_tensor", seq_len_tensor), index("lora_indices_tensor", lora_indices_tensor);
        const Written out("output_tensor", output_tensor);
        self.run([&](LoRAOps& ops) {
          return ops.sgmv_expand_slice(x, b, out, start, length, index, batches, max_seq_length, token_nums, slice_offset,
                                       slice_size, add_inputs);
        });
      });
}

}  // namespace choral::python
