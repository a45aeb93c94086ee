/* The same in C; the plug-ins' header may stand beside. */
#include <choral/choral.h>
#include <choral/plugin.h>
#include <stdio.h>

int main(void) {
  char* error = NULL;
  choral_engine* engine = NULL;
  const int32_t code = choral_engine_load("{\"model\": \"/no/such/model\"}", &engine, &error);
  if (code != CHORAL_NOT_FOUND || engine != NULL || error == NULL || choral_c_api_version() != CHORAL_C_API_VERSION) {
    fputs("loading a model that does not exist should say so\n", stderr);
    return 1;
  }
  printf("%s: %s: %s\n", choral_version(), choral_code_name(code), error);
  choral_free(error);
  return 0;
}
