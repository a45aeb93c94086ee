// Whose residency decides where a request goes: the adapter that `lora` names, else `model`. What names none, or is longer than
// client_body_buffer_size, may go anywhere.
function adapter(request) {
  try {
    const body = JSON.parse(request.requestText);
    const name = body.lora && body.lora[0] && body.lora[0].name || body.model;
    if (typeof name === "string") return name;
  } catch (error) {
    // no body, or none that is JSON
  }
  return request.variables.request_id;
}

export default { adapter };
