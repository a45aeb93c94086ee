#include "engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "gather.h"

namespace choral::python {

Engine::Engine(std::shared_ptr<LLM> llm) : process_(getpid()), llm_(std::move(llm)) {}

Engine::~Engine() { close(); }

std::shared_ptr<Engine> Engine::load(EngineOptions options, nb::object on_progress) {
  std::exception_ptr thrown;
  if (!on_progress.is_none()) {
    options.on_progress = [&](const LoadProgress& progress) {
      const nb::gil_scoped_acquire gil;
      if (thrown != nullptr) return;
      try {
        on_progress(progress.phase, progress.detail, progress.fraction);
      } catch (...) {
        thrown = std::current_exception();  // the load ends first: it cannot be left from here
      }
    };
  }
  std::unique_ptr<LLM> llm;
  {
    const nb::gil_scoped_release released;
    llm = value_of(LLM::load(std::move(options)));
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return std::shared_ptr<Engine>(new Engine(std::move(llm)));
}

std::shared_ptr<LLM> Engine::use() const {
  if (getpid() != process_) {
    raise(Status(Code::kUnavailable,
                 "this process was forked from the one that loaded the engine, whose threads it does not have; load one here, or "
                 "start processes with multiprocessing's \"spawn\""));
  }
  const std::lock_guard lock(mutex_);
  if (llm_ == nullptr) raise(Status(Code::kUnavailable, "the engine is closed"));
  return llm_;
}

void Engine::close() {
  std::shared_ptr<LLM> llm;
  {
    const std::lock_guard lock(mutex_);
    llm.swap(llm_);
  }
  // In a forked process there is nothing to end, and its destructor would wait for threads that are not there.
  if (getpid() != process_) new std::shared_ptr<LLM>(std::move(llm));
}

std::vector<RequestOutput> Engine::generate(std::vector<Request> requests, nb::object on_done) {
  const auto llm = use();
  Gather gather(*llm, std::move(requests));
  size_t told = 0;
  for (bool ended = false; !ended;) {
    size_t done = 0;
    {
      const nb::gil_scoped_release released;
      ended = gather.wait(done);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (done > told && !on_done.is_none()) on_done(done);
    told = done;
  }
  return std::move(gather).outputs();
}

namespace {

constexpr auto released = nb::call_guard<nb::gil_scoped_release>();

nb::dict stats_of(const EngineStats& stats) {
  nb::dict out;
  out["running"] = stats.running;
  out["waiting"] = stats.waiting;
  out["waiting_tokens"] = stats.waiting_tokens;
  out["steps"] = stats.steps;
  out["prompt_tokens"] = stats.prompt_tokens;
  out["generated_tokens"] = stats.generated_tokens;
  out["preemptions"] = stats.preemptions;
  out["corrupted"] = stats.corrupted;
  out["guessed_tokens"] = stats.speculation.guessed;
  out["right_guesses"] = stats.speculation.right;
  out["draft_guessed_tokens"] = stats.speculation.draft_guessed;
  out["draft_right_guesses"] = stats.speculation.draft_right;
  out["draft_steps"] = stats.speculation.draft_steps;
  out["draft_seconds"] = stats.speculation.draft_seconds;
  out["draft_failed"] = stats.speculation.draft_failed;
  out["prefix_query_tokens"] = stats.prefix_query_tokens;
  out["prefix_hit_tokens"] = stats.prefix_hit_tokens;
  out["kv_blocks_total"] = stats.kv_blocks_total;
  out["kv_blocks_free"] = stats.kv_blocks_free;
  out["adapter_bytes"] = stats.adapter_bytes;
  out["adapter_budget_bytes"] = stats.adapter_budget_bytes;
  out["adapter_loads"] = stats.adapter_loads;
  out["adapter_evictions"] = stats.adapter_evictions;
  out["host_copies"] = stats.host_copies;
  out["host_copied_bytes"] = stats.host_copied_bytes;
  return out;
}

void bind_facts(nb::module_& m) {
  nb::class_<AdapterInfo>(m, "AdapterInfo")
      .def_ro("name", &AdapterInfo::name)
      .def_ro("path", &AdapterInfo::path)
      .def_ro("id", &AdapterInfo::id)
      .def_ro("generation", &AdapterInfo::generation)
      .def_ro("digest", &AdapterInfo::digest)
      .def_ro("kind", &AdapterInfo::kind)
      .def_ro("rank", &AdapterInfo::rank)
      .def_ro("own_tokens", &AdapterInfo::own_tokens)
      .def_ro("size_bytes", &AdapterInfo::size_bytes)
      .def_prop_ro("state", [](const AdapterInfo& self) { return std::string(adapter_state_name(self.state)); })
      .def_ro("pinned", &AdapterInfo::pinned)
      .def_ro("in_use", &AdapterInfo::in_use)
      .def_ro("loads", &AdapterInfo::loads)
      .def_ro("requests", &AdapterInfo::requests)
      .def_ro("errors", &AdapterInfo::errors)
      .def_ro("error", &AdapterInfo::error)
      .def_ro("notes", &AdapterInfo::notes)
      .def("__repr__", [](const AdapterInfo& self) {
        return "AdapterInfo(name='" + self.name + "', kind='" + self.kind + "', rank=" + std::to_string(self.rank) + ", state='" +
               std::string(adapter_state_name(self.state)) + "', generation=" + std::to_string(self.generation) + ")";
      });

  nb::class_<AdapterLayer>(m, "AdapterLayer")
      .def_ro("module", &AdapterLayer::module)
      .def_ro("kind", &AdapterLayer::kind)
      .def_ro("rank", &AdapterLayer::rank)
      .def_ro("scaling", &AdapterLayer::scaling)
      .def_ro("norm", &AdapterLayer::norm);

  nb::class_<ModelInfo>(m, "ModelInfo")
      .def_ro("name", &ModelInfo::name)
      .def_ro("architecture", &ModelInfo::architecture)
      .def_ro("path", &ModelInfo::path)
      .def_ro("is_gguf", &ModelInfo::is_gguf)
      .def_ro("parameters", &ModelInfo::parameters)
      .def_ro("weight_bytes", &ModelInfo::weight_bytes)
      .def_ro("kv_cache_bytes", &ModelInfo::kv_cache_bytes)
      .def_ro("kv_cache_tokens", &ModelInfo::kv_cache_tokens)
      .def_ro("kv_block_tokens", &ModelInfo::kv_block_tokens)
      .def_ro("max_model_len", &ModelInfo::max_model_len)
      .def_ro("class_labels", &ModelInfo::class_labels)
      .def_ro("gives_text", &ModelInfo::gives_text)
      .def_ro("vocab_size", &ModelInfo::vocab_size)
      .def_ro("bos_token_id", &ModelInfo::bos_token_id)
      .def_ro("eos_token_ids", &ModelInfo::eos_token_ids)
      .def_ro("ranks", &ModelInfo::ranks)
      .def_ro("threads", &ModelInfo::threads)
      .def_ro("cpu_level", &ModelInfo::cpu_level)
      .def_ro("kv_cache_dtype", &ModelInfo::kv_cache_dtype)
      .def_ro("has_chat_template", &ModelInfo::has_chat_template)
      .def_ro("notes", &ModelInfo::notes);
}

}  // namespace

void bind_engine(nb::module_& m) {
  using nb::arg;
  bind_facts(m);
  nb::class_<Engine>(m, "Engine")
      .def_static("load", &Engine::load, arg("options"), arg("on_progress") = nb::none())
      .def("close", &Engine::close, released)
      .def("generate", &Engine::generate, arg("requests"), arg("on_done") = nb::none())
      .def(
          "tokenize",
          [](const Engine& self, std::string_view text, bool add_special_tokens, const std::vector<AdapterUse>& adapters) {
            const auto llm = self.use();
            if (adapters.empty()) return value_of(llm->tokenize(text, add_special_tokens));
            return value_of(value_of(llm->vocabulary(adapters))->tokenize(text, add_special_tokens));
          },
          arg("text"), arg("add_special_tokens") = true, arg("adapters") = std::vector<AdapterUse>(), released)
      .def(
          "detokenize",
          [](const Engine& self, const std::vector<int32_t>& ids, bool skip_special_tokens,
             const std::vector<AdapterUse>& adapters) {
            const auto llm = self.use();
            if (adapters.empty()) return llm->detokenize(ids, skip_special_tokens);
            return value_of(llm->vocabulary(adapters))->detokenize(ids, skip_special_tokens);
          },
          arg("ids"), arg("skip_special_tokens") = false, arg("adapters") = std::vector<AdapterUse>(), released)
      .def("token_text", [](const Engine& self, int32_t id) { return self.use()->token_text(id); })
      .def("token_bytes",
           [](const Engine& self, int32_t id) {
             const std::string bytes = self.use()->token_bytes(id);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def(
          "apply_chat_template",
          [](const Engine& self, const Request& request) { return value_of(self.use()->apply_chat_template(request)); },
          arg("request"), released)
      .def("structured_output_support", [](const Engine& self) { check(self.use()->structured_output_support()); })
      .def("default_sampling",
           [](const Engine& self, const SamplingParams& otherwise) { return self.use()->default_sampling(otherwise); })
      .def(
          "load_adapter",
          [](const Engine& self, const AdapterSpec& spec, bool replace) { check(self.use()->load_adapter(spec, replace)); },
          arg("spec"), arg("replace") = false, released)
      .def(
          "unload_adapter", [](const Engine& self, std::string_view name) { check(self.use()->unload_adapter(name)); },
          arg("name"), released)
      .def(
          "pin_adapter",
          [](const Engine& self, std::string_view name, bool pinned) { check(self.use()->pin_adapter(name, pinned)); },
          arg("name"), arg("pinned") = true, released)
      .def(
          "adapters", [](const Engine& self) { return self.use()->adapters(); }, released)
      .def(
          "adapter", [](const Engine& self, std::string_view name) { return self.use()->adapter(name); }, arg("name"), released)
      .def(
          "adapter_layers", [](const Engine& self, std::string_view name) { return value_of(self.use()->adapter_layers(name)); },
          arg("name"), released)
      .def("info", [](const Engine& self) { return self.use()->info(); })
      .def("device_notes", [](const Engine& self) { return self.use()->device_notes(); })
      .def(
          "stats", [](const Engine& self) { return stats_of(self.use()->stats()); },
          nb::sig("def stats(self) -> dict[str, int]"));
}

}  // namespace choral::python
