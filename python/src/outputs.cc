// What comes out. Lists of log-probabilities become NumPy arrays, of one allocation each, which Python then owns.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "binding.h"

namespace choral::python {
namespace {

template <class T>
using Array = nb::ndarray<nb::numpy, T>;

// Made of `values`, which it keeps.
template <class T>
nb::object array(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return nb::cast(Array<T>(kept->data(), shape.size(), shape.begin(), owner));
}

// (ids [n], logprobs [n], ranks [n], top ids [n, k], top logprobs [n, k]): where a position has fewer than k, id -1 and -inf.
nb::object logprob_arrays(const std::vector<PositionLogprobs>& positions) {
  if (positions.empty()) return nb::none();
  size_t most = 0;
  for (const auto& position : positions) most = std::max(most, position.top.size());
  const size_t count = positions.size();
  std::vector<int32_t> ids(count), ranks(count), top_ids(count * most, -1);
  std::vector<float> values(count), top_values(count * most, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < count; ++i) {
    ids[i] = positions[i].chosen.token_id;
    values[i] = positions[i].chosen.logprob;
    ranks[i] = positions[i].rank;
    for (size_t j = 0; j < positions[i].top.size(); ++j) {
      top_ids[i * most + j] = positions[i].top[j].token_id;
      top_values[i * most + j] = positions[i].top[j].logprob;
    }
  }
  return nb::make_tuple(array(std::move(ids), {count}), array(std::move(values), {count}), array(std::move(ranks), {count}),
                        array(std::move(top_ids), {count, most}), array(std::move(top_values), {count, most}));
}

nb::object taken(std::vector<float>& values) {
  if (values.empty()) return nb::none();
  const size_t size = values.size();
  return array(std::move(values), {size});
}

std::optional<std::string> finish_reason(FinishReason reason) {
  if (reason == FinishReason::kNone) return std::nullopt;
  return std::string(finish_reason_name(reason));
}

}  // namespace

void bind_outputs(nb::module_& m) {
  nb::class_<Completion>(m, "Completion")
      .def_ro("index", &Completion::index)
      .def_ro("text", &Completion::text)
      .def_ro("token_ids", &Completion::token_ids)
      .def_ro("cumulative_logprob", &Completion::cumulative_logprob)
      .def_ro("beam_score", &Completion::beam_score)
      .def_prop_ro("finish_reason", [](const Completion& self) { return finish_reason(self.finish_reason); })
      .def_ro("stop_reason", &Completion::stop_reason)
      .def_ro("stopped_by_token", &Completion::stopped_by_token)
      .def(
          "logprobs", [](const Completion& self) { return logprob_arrays(self.logprobs); },
          nb::sig("def logprobs(self) -> tuple[typing.Any, ...] | None"));

  nb::class_<AnswerAdapter>(m, "AnswerAdapter")
      .def_ro("name", &AnswerAdapter::name)
      .def_ro("generation", &AnswerAdapter::generation)
      .def_ro("digest", &AnswerAdapter::digest)
      .def_ro("scale", &AnswerAdapter::scale);

  nb::class_<RequestMetrics>(m, "RequestMetrics")
      .def_ro("queue_s", &RequestMetrics::queue_s)
      .def_ro("first_token_s", &RequestMetrics::first_token_s)
      .def_ro("total_s", &RequestMetrics::total_s)
      .def_ro("preemptions", &RequestMetrics::preemptions)
      .def("__repr__", [](const RequestMetrics& self) {
        return "RequestMetrics(queue_s=" + std::to_string(self.queue_s) +
               ", first_token_s=" + std::to_string(self.first_token_s) + ", total_s=" + std::to_string(self.total_s) +
               ", preemptions=" + std::to_string(self.preemptions) + ")";
      });

  nb::class_<RequestOutput>(m, "Output")
      .def_ro("id", &RequestOutput::id)
      .def("check", [](const RequestOutput& self) { check(self.status); })
      .def_ro("prompt_token_ids", &RequestOutput::prompt_token_ids)
      .def_ro("completions", &RequestOutput::completions)
      .def(
          "prompt_logprobs", [](const RequestOutput& self) { return logprob_arrays(self.prompt_logprobs); },
          nb::sig("def prompt_logprobs(self) -> tuple[typing.Any, ...] | None"))
      .def(
          "take_embedding", [](RequestOutput& self) { return taken(self.embedding); },
          nb::sig("def take_embedding(self) -> typing.Any"), "The array is the output's own memory: a second call has none.")
      .def(
          "take_classes", [](RequestOutput& self) { return taken(self.classes); },
          nb::sig("def take_classes(self) -> typing.Any"), "Likewise: the logit of each class.")
      .def_ro("cached_tokens", &RequestOutput::cached_tokens)
      .def_ro("adapters", &RequestOutput::adapters)
      .def_ro("metrics", &RequestOutput::metrics);

  nb::class_<StreamEvent>(m, "Event")
      .def_ro("index", &StreamEvent::index)
      .def_ro("text", &StreamEvent::text)
      .def_ro("token_ids", &StreamEvent::token_ids)
      .def_prop_ro("finish_reason", [](const StreamEvent& self) { return finish_reason(self.finish_reason); })
      .def_ro("stop_reason", &StreamEvent::stop_reason)
      .def_ro("stopped_by_token", &StreamEvent::stopped_by_token)
      .def(
          "logprobs", [](const StreamEvent& self) { return logprob_arrays(self.logprobs); },
          nb::sig("def logprobs(self) -> tuple[typing.Any, ...] | None"))
      .def(
          "prompt_logprobs", [](const StreamEvent& self) { return logprob_arrays(self.prompt_logprobs); },
          nb::sig("def prompt_logprobs(self) -> tuple[typing.Any, ...] | None"));
}

}  // namespace choral::python
