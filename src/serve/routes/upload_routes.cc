// Adapters that clients send: begun with the sizes of their files, sent in pieces, loaded as a whole.
#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "base/printable.h"
#include "serve/http/error_response.h"
#include "serve/list_page.h"
#include "serve/openai/adapter_calls.h"
#include "serve/openai/adapter_form.h"
#include "serve/openai/json.h"
#include "serve/routes/load_from.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

// What a path says behind /v1/adapter_uploads/: "ID", "ID/load", "ID/adapter_config.json".
struct UploadPath {
  std::string id, rest;
  static UploadPath of(std::string_view path) {
    const size_t slash = std::min(path.find('/'), path.size());
    return {std::string(path.substr(0, slash)), std::string(path.substr(std::min(slash + 1, path.size())))};
  }
};

// Runs `use` with the uploads, or answers why not.
template <class Use>
void with_uploads(Service& service, const Exchange& exchange, Use use) {
  service.with_adapters(exchange, [&service, use](LLM& llm, const Exchange& e) {
    AdapterUploads* const uploads = service.adapter_uploads();
    if (uploads == nullptr)
      return e->respond(service.error(
          unsupported("no adapters are taken here: start the server with --state-dir DIR and --store-adapters SIZE, or copy the "
                      "files to where it runs and POST /v1/load_lora_adapter with their path")));
    use(*uploads, llm, e);
  });
}

Json sent_file_json(const SentFile& file) { return {{"name", file.name}, {"bytes", file.bytes}, {"received", file.received}}; }

HttpResponse no_such_upload(const UploadPath& path) {
  return error_response({.status = 404,
                         .message = fmt::format("there is no upload '{}' here, or no more", printable(path.id, 80)),
                         .code = "not_found",
                         .param = "upload_id"});
}

Result<int64_t> read_offset(std::string_view query) {
  const std::string_view given = query_parameter(query, "offset");
  int64_t offset = 0;
  if (given.empty()) return offset;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), offset);
  if (error == std::errc() && end == given.data() + given.size() && offset >= 0) return offset;
  return invalid_argument("'offset' is {}; a number of bytes is wanted, from 0", quoted(given, 40));
}

void begin_sending(Service& service, AdapterUploads& uploads, const Exchange& e) {
  BodyNotes notes;
  const auto call = read_body(service, e, notes, read_begin_upload_call);
  if (!call) return;
  std::vector<SentFile> files;
  for (const auto& file : call->files) files.push_back({.name = file.name, .bytes = file.bytes});
  Json list = Json::array();
  for (const auto& file : files) list.push_back(sent_file_json(file));
  const auto id = uploads.begin(std::move(files));
  if (!id.ok()) return e->respond(service.error(id.status(), "files"));
  e->respond(json_response(dumped({{"id", *id}, {"object", "adapter_upload"}, {"files", std::move(list)}})));
}

void take_piece(Service& service, AdapterUploads& uploads, const Exchange& e, const UploadPath& path) {
  const auto offset = read_offset(e->request().query);
  if (!offset.ok()) return e->respond(service.error(offset.status(), "offset"));
  const auto file = uploads.write(path.id, path.rest, *offset, e->request().body);
  if (file.status().code() == Code::kAlreadyExists)
    return e->respond(
        error_response({.status = 409, .message = file.status().message(), .code = "wrong_offset", .param = "offset"}));
  if (!file.ok()) return e->respond(service.error(file.status()));
  e->respond(json_response(dumped(sent_file_json(*file))));
}

// What is whole lies at `place`, and stays there as long as something stands for it.
void load_whole(Service& service, AdapterUploads& uploads, LLM& llm, const Exchange& e, const LoadAdapterCall& call,
                const std::string& place) {
  HttpResponse response = load_from(service, call, place, "");
  const auto served = llm.adapter(call.name);
  if (!served || served->path != place) {  // also after an answer other than 200 it may be served: its record failed
    if (const Status gone = uploads.remove(place); !gone.ok()) CHORAL_LOG(kWarn, "{}", gone.message());
  }
  e->respond(std::move(response));
}

// Said before anything is used up: it may be sent again with another name.
bool is_taken(const LLM& llm, const LoadAdapterCall& call) {
  return !call.load_inplace && !call.expected_generation && llm.adapter(call.name);
}

void load_sent(Service& service, AdapterUploads& uploads, LLM& llm, const Exchange& e, const UploadPath& path) {
  BodyNotes notes;
  const auto call = read_body(service, e, notes, read_load_upload_call);
  if (!call) return;
  e->note_adapter(call->name);
  if (is_taken(llm, *call)) return e->respond(already_loaded(call->name));
  const auto place = uploads.finish(path.id);
  if (!place.ok()) return e->respond(service.error(place.status()));
  load_whole(service, uploads, llm, e, *call, *place);
}

// The files of a form, in one go.
Result<std::string> store(AdapterUploads& uploads, const AdapterForm& form) {
  std::vector<SentFile> files;
  for (const auto& file : form.files) files.push_back({.name = file.name, .bytes = std::ssize(file.content)});
  CHORAL_TRY(const std::string id, uploads.begin(std::move(files)));
  for (const auto& file : form.files) {
    if (const auto written = uploads.write(id, file.name, 0, file.content); !written.ok()) {
      uploads.drop(id);
      return written.status();
    }
  }
  return uploads.finish(id);
}

void load_form(Service& service, AdapterUploads& uploads, LLM& llm, const Exchange& e) {
  BodyNotes notes;
  const auto form = read_body(service, e, notes, [&e](std::string_view body, BodyNotes& n) {
    return read_adapter_form(e->request().headers.get("Content-Type"), body, n);
  });
  if (!form) return;
  e->note_adapter(form->call.name);
  if (is_taken(llm, form->call)) return e->respond(already_loaded(form->call.name));
  const auto place = store(uploads, *form);
  if (!place.ok()) return e->respond(service.error(place.status(), "files"));
  load_whole(service, uploads, llm, e, form->call, *place);
}

}  // namespace

void load_adapter_form(Service& service, const Exchange& exchange) {
  with_uploads(service, exchange,
               [&service](AdapterUploads& uploads, LLM& llm, const Exchange& e) { load_form(service, uploads, llm, e); });
}

void begin_upload(Service& service, const Exchange& exchange) {
  with_uploads(service, exchange,
               [&service](AdapterUploads& uploads, LLM&, const Exchange& e) { begin_sending(service, uploads, e); });
}

void put_upload(Service& service, const Exchange& exchange, std::string_view path) {
  with_uploads(service, exchange, [&service, path = UploadPath::of(path)](AdapterUploads& uploads, LLM&, const Exchange& e) {
    take_piece(service, uploads, e, path);
  });
}

void load_upload(Service& service, const Exchange& exchange, std::string_view path) {
  with_uploads(service, exchange, [&service, path = UploadPath::of(path)](AdapterUploads& uploads, LLM& llm, const Exchange& e) {
    if (path.rest != "load") return e->respond(no_such_upload(path));
    load_sent(service, uploads, llm, e, path);
  });
}

void drop_upload(Service& service, const Exchange& exchange, std::string_view path) {
  with_uploads(service, exchange, [path = UploadPath::of(path)](AdapterUploads& uploads, LLM&, const Exchange& e) {
    if (!path.rest.empty() || !uploads.drop(path.id)) return e->respond(no_such_upload(path));
    e->respond(json_response(dumped({{"id", path.id}, {"object", "adapter_upload"}, {"deleted", true}})));
  });
}

}  // namespace choral::serve
