// Which files of what was dropped or chosen are an adapter's, under the names that the server knows. A bare .safetensors brings
// no adapter_config.json; all of it but α can be told from the names and shapes of its tensors.

export interface FileToSend {
  name: string;
  content: Blob;
}

export interface ChosenFiles {
  label: string; // what they may be called: the folder's name, or the file's
  files: FileToSend[];
  left: string[]; // names that are no adapter's
  config: MadeConfig | null; // where there is none among them
}

// adapter_config.json without lora_alpha.
export interface MadeConfig {
  r: number;
  [field: string]: unknown;
}

const kConfig = "adapter_config.json",
  kWeights = "adapter_model.safetensors",
  kGguf = "adapter_model.gguf";
const kBeside = ["new_embeddings.safetensors", "tokenizer.json", "tokenizer_config.json", "added_tokens.json"];
const kMostHeaderBytes = 16 << 20;

function nameFor(file: string): string | null {
  if (file === kConfig || kBeside.includes(file)) return file;
  if (file.endsWith(".safetensors")) return kWeights;
  return file.endsWith(".gguf") ? kGguf : null;
}

// --- folders that are dropped ---

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

async function filesIn(folder: FileSystemDirectoryEntry): Promise<File[]> {
  const reader = folder.createReader();
  const files: File[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return files;
    for (const entry of some) if (entry.isFile) files.push(await fileOf(entry as FileSystemFileEntry));
  }
}

// Of a drop: called at once, since what was dropped can be had only then.
export function droppedFiles(data: DataTransfer | null): Promise<{ folder: string; files: File[] }> {
  const entries = [...(data?.items ?? [])].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const folder = entries.length === 1 && entries[0]!.isDirectory ? (entries[0] as FileSystemDirectoryEntry) : null;
  const files = [...(data?.files ?? [])];
  return folder ? filesIn(folder).then((inside) => ({ folder: folder.name, files: inside })) : Promise.resolve({ folder: "", files });
}

// --- a config for weights alone ---

interface Header {
  [tensor: string]: { shape: number[] };
}

async function headerOf(file: Blob): Promise<Header> {
  const length = file.size >= 8 ? Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true)) : 0;
  if (length < 2 || length > Math.min(kMostHeaderBytes, file.size - 8)) throw new Error("it is no safetensors file");
  try {
    return JSON.parse(await file.slice(8, 8 + length).text());
  } catch {
    throw new Error("its header is no JSON: the file is damaged");
  }
}

const kPair = /^(?:base_model\.model\.)?(.+)\.lora_A\.(?:default\.)?weight$/;

export function configOf(header: Header): MadeConfig {
  const ranks = new Map<string, number>();
  for (const [tensor, { shape }] of Object.entries(header)) {
    const pair = kPair.exec(tensor);
    if (pair && Array.isArray(shape)) ranks.set(pair[1], shape[0]);
  }
  if (ranks.size === 0) throw new Error("it has no pairs of lora_A and lora_B, so it is no adapter in PEFT's form");
  const r = Math.max(...ranks.values());
  const others = [...ranks].filter(([, rank]) => rank !== r);
  return {
    peft_type: "LORA",
    task_type: "CAUSAL_LM",
    r,
    target_modules: [...ranks.keys()],
    bias: "none",
    ...(others.length > 0 ? { rank_pattern: Object.fromEntries(others) } : {}),
    ...(Object.keys(header).some((tensor) => tensor.includes("lora_magnitude_vector")) ? { use_dora: true } : {}),
  };
}

export function withAlpha(config: MadeConfig, alpha: number): FileToSend {
  return { name: kConfig, content: new Blob([JSON.stringify({ ...config, lora_alpha: alpha })]) };
}

// --- all together ---

export async function chooseFiles(folder: string, given: File[]): Promise<ChosenFiles> {
  const files: FileToSend[] = [];
  const left: string[] = [];
  let label = folder;
  for (const file of given) {
    const name = nameFor(file.name);
    if (name === null) {
      left.push(file.name);
      continue;
    }
    if (files.some((other) => other.name === name))
      throw new Error(`There are several files that could be ${name}: drop one adapter at a time.`);
    if (!folder && (name === kWeights || name === kGguf)) label = file.name.replace(/\.[a-z]+$/, "");
    files.push({ name, content: file });
  }
  const weights = files.find((file) => file.name === kWeights);
  if (!weights && !files.some((file) => file.name === kGguf))
    throw new Error(`There is no ${kWeights} and no .gguf among ${given.length === 1 ? given[0].name : `${given.length} files`}.`);
  const hasConfig = files.some((file) => file.name === kConfig);
  let config: MadeConfig | null = null;
  if (weights && !hasConfig) {
    try {
      config = configOf(await headerOf(weights.content));
    } catch (failure) {
      throw new Error(`${(weights.content as File).name} came without ${kConfig}, and ${(failure as Error).message}.`);
    }
  }
  return { label, files, left, config };
}
