// A stream of its own for the one thread that may copy beside the engine's.
#include "platform/plugin/plugin_device.h"
#include "platform/plugin/plugin_host.h"

namespace choral::platform {
namespace {

class PluginSideCopies : public SideCopies {
 public:
  PluginSideCopies(std::shared_ptr<PluginDevice> device, choral_stream* stream) : device_(std::move(device)), stream_(stream) {}
  ~PluginSideCopies() override { device_->call(memory().stream_destroy, stream_); }

  Status copy(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t row_bytes,
              int64_t rows) override {
    const auto copy = copy_of_rows(CHORAL_HOST_TO_DEVICE, to, to_pitch, from, from_pitch, row_bytes, rows);
    return take_status(device_->call(memory().copy, stream_, &copy)).while_("copy beside the step");
  }
  Status finish() override {
    return take_status(device_->call(memory().stream_synchronize, stream_)).while_("copy beside the step");
  }

 private:
  const choral_memory_api& memory() const { return device_->plugin().memory; }

  std::shared_ptr<PluginDevice> device_;
  choral_stream* stream_;
};

}  // namespace

Result<std::unique_ptr<SideCopies>> PluginDevice::copies_beside() {
  if (plugin_->memory.copies_beside == 0) return std::unique_ptr<SideCopies>();
  choral_stream* stream = nullptr;
  CHORAL_RETURN_IF_ERROR(take_status(call(plugin_->memory.stream_create, &stream)));
  if (stream == nullptr) return internal_error("stream_create gave neither a stream nor an error");
  return std::unique_ptr<SideCopies>(std::make_unique<PluginSideCopies>(shared_from_this(), stream));
}

}  // namespace choral::platform
