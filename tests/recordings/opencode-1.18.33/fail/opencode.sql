CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded95da9001BxQS8Iwoi3I77J','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740149673,1794740151388,'{"role":"user","time":{"created":1794740149673},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded960e700115f5xpmaYZAnur','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740150503,1794740151350,'{"parentID":"msg_1ded95da9001BxQS8Iwoi3I77J","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740150503,"completed":1794740151348},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded9643a0016fxZbHko74V4y0','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151354,1794740151579,'{"parentID":"msg_1ded95da9001BxQS8Iwoi3I77J","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740151354,"completed":1794740151578},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded95dbd001DCWPzADf5i9Fip','msg_1ded95da9001BxQS8Iwoi3I77J','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740149701,1794740149703,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded963ad001pkZAlE6FiKHgIm','msg_1ded960e700115f5xpmaYZAnur','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151213,1794740151214,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded963b00013xGKFHclxPuq0j','msg_1ded960e700115f5xpmaYZAnur','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151216,1794740151322,'{"type":"tool","tool":"bash","callID":"call_main_00_00","state":{"status":"completed","input":{"command":"echo oops >&2; exit 3"},"output":"oops\n","metadata":{"output":"oops\n","exit":3,"truncated":false},"title":"echo oops >&2; exit 3","time":{"start":1794740151225,"end":1794740151321}}}');
INSERT INTO "part" VALUES('prt_1ded963bb001c7HK5JaYlktJtR','msg_1ded960e700115f5xpmaYZAnur','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151227,1794740151242,'{"type":"tool","tool":"invalid","callID":"call_main_00_01","state":{"status":"completed","input":{"tool":"no_such_tool","error":"Model tried to call unavailable tool ''no_such_tool''. Available tools: bash, edit, glob, grep, invalid, read, skill, task, todowrite, webfetch, write."},"output":"The arguments provided to the tool are invalid: Model tried to call unavailable tool ''no_such_tool''. Available tools: bash, edit, glob, grep, invalid, read, skill, task, todowrite, webfetch, write.","metadata":{"truncated":false},"title":"Invalid Tool","time":{"start":1794740151237,"end":1794740151241}}}');
INSERT INTO "part" VALUES('prt_1ded96421001mhqjqP2asesjLw','msg_1ded960e700115f5xpmaYZAnur','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151330,1794740151331,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded964ca001nwi3Ye0KXhzt4I','msg_1ded9643a0016fxZbHko74V4y0','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151502,1794740151518,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded964ef0010H7kkcFEr3TfLR','msg_1ded9643a0016fxZbHko74V4y0','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151535,1794740151570,'{"type":"text","text":"It failed.","time":{"start":1794740151535,"end":1794740151569}}');
INSERT INTO "part" VALUES('prt_1ded96513001Ep33zhd9EhF0tE','msg_1ded9643a0016fxZbHko74V4y0','ses_e2126a29fffeBGvHBzxeh2KOWr',1794740151571,1794740151572,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e2126a29fffeBGvHBzxeh2KOWr','global',NULL,NULL,'clever-nebula','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740149600,1794740151609,NULL,NULL);
