// src/*.js -> report.js, the one script of the page. `npm run build` writes it; `node scripts/build.js FILE` writes it elsewhere.
// The first line names the sources by their hash, so that a test without Node can see whether the bundle is theirs.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const hash = createHash("sha256");
for (const name of readdirSync(join(here, "src")).filter((name) => name.endsWith(".js")).sort()) {
  hash.update(name).update("\0").update(readFileSync(join(here, "src", name))).update("\0");
}
const { outputFiles } = await build({
  entryPoints: [join(here, "src", "main.js")],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii", // the page is UTF-8, but who serves it may say otherwise
  write: false,
});
const banner = `// made from src/ by \`npm run build\`, sources ${hash.digest("hex").slice(0, 16)}\n`;
writeFileSync(process.argv[2] ?? join(here, "report.js"), banner + outputFiles[0].text);
