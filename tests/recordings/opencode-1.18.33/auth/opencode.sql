CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1dedae1d20017MoJ6HA9RI55Wx','ses_e21252166ffe9GB20nwU9JhkHa',1794740249042,1794740251823,'{"role":"user","time":{"created":1794740249042},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1dedaec5d001b5fvLS7FBu0mJ3','ses_e21252166ffe9GB20nwU9JhkHa',1794740251741,1794740254092,'{"parentID":"msg_1dedae1d20017MoJ6HA9RI55Wx","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740251741,"completed":1794740254091},"error":{"name":"APIError","data":{"message":"no such key","statusCode":401,"isRetryable":false,"responseHeaders":{"content-length":"112","content-type":"application/json","date":"Sun, 15 Nov 2026 10:57:33 GMT","server":"scripted-model"},"responseBody":"{\"error\": {\"message\": \"no such key\", \"type\": \"invalid_request_error\", \"param\": null, \"code\": \"invalid_api_key\"}}","metadata":{"url":"http://127.0.0.1:8000/v1/chat/completions"}}}}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1dedae202001mA9mGbxqQyEq9T','msg_1dedae1d20017MoJ6HA9RI55Wx','ses_e21252166ffe9GB20nwU9JhkHa',1794740249111,1794740249130,'{"type":"text","text":"Do it."}');
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
INSERT INTO "session" VALUES('ses_e21252166ffe9GB20nwU9JhkHa','global',NULL,NULL,'eager-tiger','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0,0,0,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740248218,1794740251808,NULL,NULL);
