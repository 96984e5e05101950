CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1dedaa897001xoFAIGlrQn78MX','ses_e21255845ffesbxJROFHDokEjP',1794740234391,1794740239617,'{"role":"user","time":{"created":1794740234391},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1dedab22e001hRbPwJB41SMhy7','ses_e21255845ffesbxJROFHDokEjP',1794740236846,1794740239563,'{"parentID":"msg_1dedaa897001xoFAIGlrQn78MX","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740236846,"completed":1794740239562},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1dedabcd5001GK92SY2t05d41s','ses_e21255845ffesbxJROFHDokEjP',1794740239573,1794740239673,'{"parentID":"msg_1dedaa897001xoFAIGlrQn78MX","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740239573,"completed":1794740239673},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1dedaa8a3001oKf4lvN2rADwjo','msg_1dedaa897001xoFAIGlrQn78MX','ses_e21255845ffesbxJROFHDokEjP',1794740234610,1794740234611,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1dedabc85001oF27mi53lkN480','msg_1dedab22e001hRbPwJB41SMhy7','ses_e21255845ffesbxJROFHDokEjP',1794740239493,1794740239495,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedabc8d001VaXaEBbdNYR8e7','msg_1dedab22e001hRbPwJB41SMhy7','ses_e21255845ffesbxJROFHDokEjP',1794740239501,1794740239547,'{"type":"tool","tool":"adder_add","callID":"call_main_00_00","state":{"status":"completed","input":{"a":2,"b":3},"output":"5","metadata":{"truncated":false},"title":"","time":{"start":1794740239511,"end":1794740239546}}}');
INSERT INTO "part" VALUES('prt_1dedabc9a001D2m6WYMw8enO0m','msg_1dedab22e001hRbPwJB41SMhy7','ses_e21255845ffesbxJROFHDokEjP',1794740239514,1794740239542,'{"type":"tool","tool":"adder_boom","callID":"call_main_00_01","state":{"status":"error","input":{},"error":"boom failed","time":{"start":1794740239525,"end":1794740239538}}}');
INSERT INTO "part" VALUES('prt_1dedabcc0001bD6LRkAs9b4DFm','msg_1dedab22e001hRbPwJB41SMhy7','ses_e21255845ffesbxJROFHDokEjP',1794740239553,1794740239554,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1dedabd1e0013Oe9Au0nbHvRfE','msg_1dedabcd5001GK92SY2t05d41s','ses_e21255845ffesbxJROFHDokEjP',1794740239646,1794740239647,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1dedabd20001EKtbvQQMshR2p3','msg_1dedabcd5001GK92SY2t05d41s','ses_e21255845ffesbxJROFHDokEjP',1794740239657,1794740239665,'{"type":"text","text":"Five.","time":{"start":1794740239648,"end":1794740239660}}');
INSERT INTO "part" VALUES('prt_1dedabd32001okavUpBPqjKY9u','msg_1dedabcd5001GK92SY2t05d41s','ses_e21255845ffesbxJROFHDokEjP',1794740239666,1794740239667,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
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
INSERT INTO "session" VALUES('ses_e21255845ffesbxJROFHDokEjP','global',NULL,NULL,'sunny-sailor','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740234170,1794740239746,NULL,NULL);
